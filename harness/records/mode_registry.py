"""Which modes exist. Names resolve without importing torch or the mode's module."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from ..errors import nearest

if TYPE_CHECKING:
    from ..hooks.mode_protocol import Mode

ENTRY_POINT_GROUP = "numdrift.modes"


@dataclass(frozen=True, slots=True)
class ModeEntry:
    """One base of the mode grammar: where its class is (`module:class`) and what it executes.

    `forks`: a process of the mode may be forked from one that has torch imported. The driver of a device must not be
    loaded by that import, for it does not survive a fork.
    """

    name: str
    target: str
    summary: str
    forks: bool = False


class ModeRegistry:
    """Bases by name; plug-ins come from the entry point group `numdrift.modes`."""

    def __init__(self) -> None:
        self._entries: dict[str, ModeEntry] = {}
        self._plugins_read = False

    def register(self, name: str, target: str, summary: str, *, forks: bool = False) -> None:
        """Add a base. Raises ValueError, naming both, when the name is taken."""
        if name in self._entries:
            raise ValueError(f"mode {name!r} is {self._entries[name].target} already, not {target}")
        self._entries[name] = ModeEntry(name, target, summary, forks)

    def names(self) -> tuple[str, ...]:
        self._read_plugins()
        return tuple(self._entries)

    def entry(self, name: str) -> ModeEntry:
        """Find a base. Raises KeyError, naming the nearest, when there is none."""
        if name not in self.names():
            raise KeyError(f"there is no mode {name!r}; {nearest(name, self.names())}")
        return self._entries[name]

    def load(self, name: str) -> type[Mode]:
        """Import the class of a base."""
        module, _, attribute = self.entry(name).target.partition(":")
        loaded: Any = getattr(importlib.import_module(module), attribute)
        return loaded  # type: ignore[no-any-return]

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        self._plugins_read = True
        for point in entry_points(group=ENTRY_POINT_GROUP):
            self.register(point.name, point.value, f"plug-in {point.value}")


registry = ModeRegistry()
registry.register(
    "cpu", "numdrift.harness.backends.eager.mode:EagerMode", "eager on the CPU, the usual reference", forks=True
)
registry.register("compile", "numdrift.harness.backends.compiled.mode:CompileMode", "eager + torch.compile", forks=True)
registry.register(
    "lazy", "numdrift.harness.backends.lazy.mode:LazyMode", "lazy tensors, TorchScript backend", forks=True
)
registry.register("xla", "numdrift.harness.backends.xla.mode:XlaMode", "torch_xla (PJRT)", forks=True)
for _device in ("cuda", "hpu", "npu", "mps", "xpu"):
    registry.register(
        _device,
        "numdrift.harness.backends.eager.mode:EagerMode",
        f"eager on the device {_device!r}",
        forks=_device == "cuda",  # seen on an H200, torch 2.11: the import of torch opens no device
    )
