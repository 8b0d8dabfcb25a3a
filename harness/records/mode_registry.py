"""The existing modes. Names resolve without importing torch or the mode's module."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from ..errors import nearest

if TYPE_CHECKING:
    from ..hooks.mode_protocol import Mode

ENTRY_POINT_GROUP = "numdrift.modes"
"""Modes of plug-ins, each with its class: `toy = "toy_backend:ToyMode"`."""

DEVICES_GROUP = "numdrift.devices"
"""Devices of vendors, each with the module whose import registers it: `npu = "torch_npu"`. A device is a mode."""

EAGER = "numdrift.harness.backends.eager.mode:EagerMode"


@dataclass(frozen=True, slots=True)
class ModeEntry:
    """A base of the mode grammar: the location of its class (`module:class`) and a summary of what it executes.

    `device`: the device that it computes on if the mode states none.
    `module`: the module to import if torch does not know that device, "" if it always does.
    `forks`: a process of the mode may be forked from one that has torch imported. The driver of a device must not be
    loaded by that import, since it does not survive a fork.
    """

    name: str
    target: str
    summary: str
    device: str = "cpu"
    module: str = ""
    forks: bool = False


class ModeRegistry:
    """Bases by name; plug-ins come from the entry point groups `numdrift.modes` and `numdrift.devices`."""

    def __init__(self) -> None:
        self._entries: dict[str, ModeEntry] = {}
        self._plugins_read = False

    def register(
        self, name: str, target: str, summary: str, *, device: str = "cpu", module: str = "", forks: bool = False
    ) -> None:
        """Add a base. Raises ValueError, naming both, when the name is taken."""
        if name in self._entries:
            raise ValueError(f"mode {name!r} is {self._entries[name].target} already, not {target}")
        self._entries[name] = ModeEntry(name, target, summary, device, module, forks)

    def names(self) -> tuple[str, ...]:
        self._read_plugins()
        return tuple(self._entries)

    def entry(self, name: str) -> ModeEntry:
        """Find a base. Raises KeyError, naming the nearest, when there is none."""
        if name not in self.names():
            raise KeyError(f"there is no mode {name!r}; {nearest(name, self.names())}")
        return self._entries[name]

    def device(self, name: str) -> str:
        """The device of a base that states none; the name itself if the base is not known here."""
        return self._entries[name].device if name in self.names() else name

    def module_of(self, device: str) -> str:
        """The module to import if torch does not know a device, "" if none is known to help."""
        return next((entry.module for entry in self._known() if entry.device == device and entry.module), "")

    def load(self, name: str) -> type[Mode]:
        """Import the class of a base."""
        module, _, attribute = self.entry(name).target.partition(":")
        loaded: Any = getattr(importlib.import_module(module), attribute)
        return loaded  # type: ignore[no-any-return]

    def _known(self) -> tuple[ModeEntry, ...]:
        self._read_plugins()
        return tuple(self._entries.values())

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        self._plugins_read = True
        modules = {point.name: point.value for point in entry_points(group=DEVICES_GROUP)}
        modes = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
        for name, module in modules.items():
            if name in self._entries and name not in modes:  # torch's name of a device: this module loads it
                self._entries[name] = replace(self._entries[name], module=module)
            elif name not in modes:
                self.register(name, EAGER, f"eager on the device {name!r} of {module}", device=name, module=module)
        for name, target in modes.items():
            device = name if name in modules else "cpu"
            self.register(name, target, f"plug-in {target}", device=device, module=modules.get(name, ""))


registry = ModeRegistry()
registry.register("cpu", EAGER, "eager on the CPU, the usual reference", forks=True)
registry.register("compile", "numdrift.harness.backends.compiled.mode:CompileMode", "eager + torch.compile", forks=True)
registry.register(
    "lazy",
    "numdrift.harness.backends.lazy.mode:LazyMode",
    "lazy tensors, TorchScript backend",
    device="lazy",
    forks=True,
)
registry.register("xla", "numdrift.harness.backends.xla.mode:XlaMode", "torch_xla (PJRT)", device="xla", forks=True)
VENDORS = {"cuda": "", "hpu": "habana_frameworks.torch.core", "npu": "torch_npu", "mps": "", "xpu": ""}
"""Devices that torch has a name for, and the module that adds them to a torch that was built without."""

for _device, _module in VENDORS.items():
    registry.register(
        _device,
        EAGER,
        f"eager on the device {_device!r}",
        device=_device,
        module=_module,
        forks=_device == "cuda",  # seen on an H200, torch 2.11: the import of torch opens no device
    )
