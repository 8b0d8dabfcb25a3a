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
"""Called with the wanted tensors (None: all that are pending), and the function that executes their pending work and
waits until it is done."""


def around_lazy_syncs(around: Around) -> Undo:
    """Route every execution of pending work through `around`; return the undo. Raises NotAvailable."""

    def synced(tensors: Sequence[torch.Tensor] | None, wait: bool, schedule: Callable[[bool], None]) -> None:
        def execute() -> None:
            schedule(wait)
            wait_for_lazy_core()

        around(tensors, execute)

    return wrap_lazy_syncs("the syncs of the lazy core", synced)


def wrap_lazy_syncs(
    owner: str, synced: Callable[[Sequence[torch.Tensor] | None, bool, Callable[[bool], None]], None]
) -> Undo:
    """Route every call that hands pending work to the lazy core through `synced`; return the undo.

    `synced` receives the wanted tensors (None: all that are pending), whether the caller waits for the end, and the
    function that hands the work over. That function waits if its argument is true. Raises NotAvailable.
    """
    core: Any = importlib.import_module("torch._C._lazy")
    for name in ("_mark_step", "_sync_multi", "_wait_device_ops"):
        require(core, name)

    def marking(mark: Callable[..., None]) -> Callable[..., None]:
        def marked(device: str = "", devices: Sequence[str] = (), wait: bool = True) -> None:
            synced(None, wait, lambda waits: mark(device, list(devices), waits))

        return marked

    def syncing(sync: Callable[..., None]) -> Callable[..., None]:
        def sync_multi(
            tensors: Sequence[torch.Tensor], devices: Sequence[str], wait: bool = True, sync_ltc_data: bool = True
        ) -> None:
            synced(tensors, wait, lambda waits: sync(list(tensors), list(devices), waits, sync_ltc_data))

        return sync_multi

    with Patches(owner) as patches:
        patches.wrap(core, "_mark_step", marking)
        patches.wrap(core, "_sync_multi", syncing)
    return patches.undo


def wait_for_lazy_core() -> None:
    """Wait until the work that was handed to the lazy core has been executed."""
    importlib.import_module("torch._C._lazy")._wait_device_ops([])
