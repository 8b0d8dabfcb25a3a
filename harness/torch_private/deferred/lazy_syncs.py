"""The calls by which the lazy core executes pending work: mark_step, and syncs of some tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..patches import Patches, Undo
from ..presence import require

EXECUTIONS = ("CachedCompile", "UncachedCompile")
"""The counters that the lazy core increases at each execution of a graph."""

Around = Callable[[Sequence[torch.Tensor] | None, Callable[[], None]], None]
"""Called with the wanted tensors (None: all that are pending), and the function that executes them and waits for the
end."""


def around_lazy_syncs(around: Around) -> Undo:
    """Route every execution of pending work through `around`; return the undo. Raises NotAvailable."""
    core: Any = importlib.import_module("torch._C._lazy")
    for name in ("_mark_step", "_sync_multi", "_wait_device_ops"):
        require(core, name)

    def waiting(schedule: Callable[[], None]) -> Callable[[], None]:
        def execute() -> None:
            schedule()
            core._wait_device_ops([])

        return execute

    def marking(mark: Callable[..., None]) -> Callable[..., None]:
        def marked(device: str = "", devices: Sequence[str] = (), wait: bool = True) -> None:
            around(None, waiting(lambda: mark(device, list(devices), wait)))

        return marked

    def syncing(sync: Callable[..., None]) -> Callable[..., None]:
        def synced(
            tensors: Sequence[torch.Tensor], devices: Sequence[str], wait: bool = True, data: bool = True
        ) -> None:
            around(tensors, waiting(lambda: sync(list(tensors), list(devices), wait, data)))

        return synced

    with Patches("the syncs of the lazy core") as patches:
        patches.wrap(core, "_mark_step", marking)
        patches.wrap(core, "_sync_multi", syncing)
    return patches.undo
