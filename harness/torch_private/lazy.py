"""The lazy core: its TorchScript backend, mark_step and syncs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence

import torch

from ..errors import NotAvailable
from .presence import private


def start_lazy_backend() -> None:
    """Start the TorchScript backend of the lazy core, once: a second start (the script's own) does nothing."""
    backend = importlib.import_module("torch._lazy.ts_backend")
    start = private("torch._lazy.ts_backend", "init")
    try:
        start()
    except RuntimeError as error:
        raise NotAvailable("mode 'lazy'", str(error).splitlines()[0]) from error
    backend.init = lambda: None  # type: ignore[attr-defined]


def lazy_mark_step() -> Callable[[], None]:
    """The function that cuts and executes the pending lazy graph."""
    mark: Callable[[], None] = private("torch._lazy", "mark_step")
    return mark


def replace_lazy_mark_step(replacement: Callable[..., None]) -> None:
    """Route the script's own `torch._lazy.mark_step()` to `replacement`."""
    importlib.import_module("torch._lazy").mark_step = replacement  # type: ignore[attr-defined]


def replace_lazy_unscaling() -> Callable[[], None]:
    """Have gradient scalers unscale lazy gradients; gives the undo.

    The lazy core executes `_amp_foreach_non_finite_check_and_unscale_` on the CPU and loses what it writes
    into a list (torch 2.13): gradients stay scaled without a word."""
    original = private("torch", "_amp_foreach_non_finite_check_and_unscale_")

    def unscale(gradients: Sequence[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> None:
        if not any(one.device.type == "lazy" for one in gradients):
            original(gradients, found, inverse)
            return
        for one in gradients:
            found.copy_(torch.maximum(found, one.isfinite().logical_not().any().to(found.dtype)))
            one.mul_(inverse)

    name = original.__name__
    setattr(torch, name, unscale)
    return lambda: setattr(torch, name, original)


def sync_lazy(tensors: Sequence[torch.Tensor], reason: str = "read") -> None:
    """Execute what the given lazy tensors need, in one graph. `reason` is what an observer is told."""
    wanted = [tensor for tensor in tensors if tensor.device.type == "lazy"]
    if wanted:
        _reasons.append(reason)
        try:
            private("torch._C._lazy", "_sync_multi")(wanted, [], True, True)
        finally:
            _reasons.pop()


_reasons: list[str] = []


def sync_reason() -> str:
    """Why the sync that is under way was ordered; "sync" where somebody else has ordered it."""
    return _reasons[-1] if _reasons else "sync"


def lazy_has_value(tensor: torch.Tensor) -> bool:
    """Whether the value of a lazy tensor can be read without executing anything. Adds nothing to any graph."""
    private("torch", "_functionalize_sync")(tensor)
    if _pending_graph(tensor) == _no_graph():
        return True
    # What came from the host and was used since has a node of its own, and its value all the same.
    nodes = [line for line in _pending_text(tensor).splitlines() if line.lstrip().startswith("%")]
    return len(nodes) == 1 and " lazy_tensors::device_data()" in nodes[0]


def _pending_graph(tensor: torch.Tensor) -> bytes:
    """The hash of the graph that computes the tensor."""
    return bytes(private("torch._C._lazy", "_get_graph_hash")([tensor]))


def _pending_text(tensor: torch.Tensor) -> str:
    return str(private("torch._C._lazy", "_get_tensors_text")([tensor]))


@functools.cache
def _no_graph() -> bytes:
    with torch.no_grad():
        return _pending_graph(torch.zeros((), device="cpu").to("lazy"))
