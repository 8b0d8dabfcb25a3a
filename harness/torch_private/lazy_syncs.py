"""The orders by which the lazy core executes what is pending: marked steps, and syncs of some tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .patches import Patches, Undo
from .presence import require

EXECUTIONS = ("CachedCompile", "UncachedCompile")
"""What the lazy core counts at each execution of a graph."""

Around = Callable[[Sequence[torch.Tensor] | None, Callable[[], None]], None]
"""Given the tensors that are wanted (None: all that are pending) and what executes them, and waits until it has."""


def around_lazy_syncs(around: Around) -> Undo:
    """Have every order of an execution led through `around`; gives the undo. Raises NotAvailable."""
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
