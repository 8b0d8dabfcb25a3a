"""The registry of modes. Names resolve without importing torch or the mode's module."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from ...errors import nearest
from .capabilities import Capabilities

if TYPE_CHECKING:
    from ...hooks.mode_protocol import Mode

ENTRY_POINT_GROUP = "numdrift.modes"
"""The entry points of modes from plug-ins, each with its class: `toy = "toy_backend:ToyMode"`.

Only the mode's processes import the class, since it imports torch. In all other processes the mode has the default
capabilities, whatever its class states."""

DEVICES_GROUP = "numdrift.devices"
"""The entry points of vendors' devices, each with the module whose import registers it: `npu = "torch_npu"`. Each of
these devices is a mode."""

EAGER = "numdrift.harness.backends.eager.mode:EagerMode"


@dataclass(frozen=True, slots=True)
class ModeEntry:
    """A base of the mode grammar.

    name: its name in the grammar
    target: the location of its class, `module:class`
    summary: what it executes, in a few words
    capabilities: its capabilities, available without importing its class
    device: the device that it computes on if the mode states none
    module: the module to import if torch does not know that device, "" if torch always knows it
    forks: whether a process of the mode may be forked from a process that has imported torch; that import must not load
        a device's driver, which does not survive a fork
    """

    name: str
    target: str
    summary: str
    capabilities: Capabilities = field(default_factory=Capabilities)
    device: str = "cpu"
    module: str = ""
    forks: bool = False


class ModeRegistry:
    """The bases by name, with plug-ins from the entry point groups `numdrift.modes` and `numdrift.devices`."""

    def __init__(self) -> None:
        self._entries: dict[str, ModeEntry] = {}
        self._plugins_read = False

    def register(self, entry: ModeEntry) -> None:
        """Add a base. Raises ValueError, which names both bases, if the name is taken."""
        if entry.name in self._entries:
            other_target = self._entries[entry.name].target
            raise ValueError(
                f"mode {entry.name!r} is already registered as {other_target}; it cannot also be {entry.target}"
            )
        self._entries[entry.name] = entry

    def names(self) -> tuple[str, ...]:
        self._read_plugins()
        return tuple(self._entries)

    def entry(self, name: str) -> ModeEntry:
        """Return the entry of a base. If there is none, raises KeyError, which names the base with the nearest name."""
        if name not in self.names():
            raise KeyError(f"there is no mode {name!r}; {nearest(name, self.names())}")
        return self._entries[name]

    def device(self, name: str) -> str:
        """Return the default device of a base, or the base's name if this installation does not know the base."""
        return self._entries[name].device if name in self.names() else name

    def capabilities(self, name: str) -> Capabilities:
        """Return the capabilities of a base; those of eager execution if this installation does not know the base."""
        return self._entries[name].capabilities if name in self.names() else Capabilities()

    def bases_of_key(self, key: str) -> tuple[str, ...]:
        """Return the bases that have this key of the mode grammar; an empty tuple if every base has it."""
        return tuple(entry.name for entry in self._all_entries() if key in entry.capabilities.keys)

    def module_of(self, device: str) -> str:
        """Return the module to import if torch does not know a device, "" if no such module is known."""
        return next((entry.module for entry in self._all_entries() if entry.device == device and entry.module), "")

    def load(self, name: str) -> type[Mode]:
        """Import the class of a base."""
        module, _, attribute = self.entry(name).target.partition(":")
        loaded: Any = getattr(importlib.import_module(module), attribute)
        return loaded  # type: ignore[no-any-return]

    def _all_entries(self) -> tuple[ModeEntry, ...]:
        self._read_plugins()
        return tuple(self._entries.values())

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        self._plugins_read = True
        modules = {point.name: point.value for point in entry_points(group=DEVICES_GROUP)}
        modes = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
        for name, module in modules.items():
            if name in self._entries and name not in modes:  # torch has a name for this device, and the module adds it
                self._entries[name] = replace(self._entries[name], module=module)
            elif name not in modes:
                summary = f"eager on the device {name!r} of {module}"
                self.register(ModeEntry(name, EAGER, summary, PLAIN, device=name, module=module))
        for name, target in modes.items():
            device = name if name in modules else "cpu"
            summary, module = f"plug-in {target}", modules.get(name, "")
            self.register(ModeEntry(name, target, summary, device=device, module=module))


PLAIN = Capabilities(aten_kernels=True)

COMPILED = Capabilities(
    compiles=True,
    aten_kernels=True,
    draws_as="a compiled mode",
    keys=frozenset(
        {
            "backend",
            "contract",
            "emulate_casts",
            "fallback_random",
            "allow_rnn",
            "graph_cache",
            "dynamic",
            "decompose",
            "inductor",
        }
    ),
)

LAZY = Capabilities(
    has_values=False,
    tapes_itself=False,
    has_storage=False,
    collectives=False,
    default_device=False,
    aten_kernels=True,
    keys=frozenset({"mark_step", "execute"}),
)

XLA = Capabilities(
    has_values=False,
    has_storage=False,
    collectives=False,
    own_kernels="xla",
    draws_as="an xla mode",
    executes_hlo=True,
    package="torch_xla",
    keys=frozenset({"fallback_random", "mark_step", "execute"}),
)

OWN = (
    ModeEntry("cpu", EAGER, "eager on the CPU, the usual reference", PLAIN, forks=True),
    ModeEntry(
        "compile", "numdrift.harness.backends.compiled.mode:CompileMode", "eager + torch.compile", COMPILED, forks=True
    ),
    ModeEntry(
        *("lazy", "numdrift.harness.backends.lazy.mode:LazyMode", "lazy tensors, TorchScript backend", LAZY),
        device="lazy",
        forks=True,
    ),
    ModeEntry(
        *("xla", "numdrift.harness.backends.xla.mode:XlaMode", "torch_xla (PJRT)", XLA), device="xla", forks=True
    ),
)

VENDORS = {"cuda": "", "hpu": "habana_frameworks.torch.core", "npu": "torch_npu", "mps": "", "xpu": ""}
"""Accelerators that torch has a name for, each with the module that adds it to a torch that was built without it.

"" means that there is no such module."""

DEFERRED_DEVICES = frozenset(entry.device for entry in OWN if not entry.capabilities.has_values)
"""The devices that compute an op's result some time after the op is called."""

DEVICES_OF_THE_CPU = frozenset(entry.device for entry in OWN if entry.capabilities.aten_kernels)
"""The devices that execute torch's kernels for the CPU."""

DEVICES_WITHOUT_STORAGE = frozenset(entry.device for entry in OWN if not entry.capabilities.has_storage)
"""The devices whose tensors have no storage. Tensors from a file are loaded to the CPU, and moved when they are
used."""

registry = ModeRegistry()
for _entry in OWN:
    registry.register(_entry)
for _device, _module in VENDORS.items():
    registry.register(
        ModeEntry(
            _device,
            EAGER,
            f"eager on the device {_device!r}",
            PLAIN,
            device=_device,
            module=_module,
            forks=_device == "cuda",  # observed on an H200 with torch 2.11: importing torch opens no device
        )
    )
