"""The lazy core asked what it makes of an op: counters of its fallbacks, and the IR of pending tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .dispatching import Overrides
from .lazy_graphs import LAZY_KEY
from .patches import Patches
from .presence import private, require


def lazy_counter(name: str) -> int:
    """What the lazy core has counted under a name; `aten::lerp.Scalar` are executions of that op on the CPU."""
    value: int | None = private("torch._lazy.metrics", "counter_value")(name)
    return value or 0


def lazy_text(tensors: Sequence[torch.Tensor]) -> str:
    """The IR of the graph that is pending for these lazy tensors, which stays as it is."""
    return str(private("torch._C._lazy", "_get_tensors_text")(_wrapped(tensors)))


def lower_lazy(tensors: Sequence[torch.Tensor]) -> None:
    """Have the lazy core lower the graph that is pending for these lazy tensors, and execute nothing.

    Raises RuntimeError where its backend has no lowering for a node.
    """
    private("torch._C._lazy", "_get_tensors_backend")(_wrapped(tensors))


def _wrapped(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors as a script has them: within a kernel of the lazy core they lack the wrapper of
    functionalization."""
    wrapped = private("torch", "_is_functional_tensor")
    wrap = private("torch", "_to_functional_tensor")
    return [one if wrapped(one) else wrap(one) for one in tensors]


@contextmanager
def lazy_without_execution() -> Iterator[None]:
    """Within the context the lazy core builds graphs and executes none: what is read from it is zeros.

    Raises NotAvailable.
    """
    core: Any = importlib.import_module("torch._C._lazy")
    for name in ("_mark_step", "_sync_multi"):
        require(core, name)
    with Patches("a lazy core that executes nothing") as patches:
        for name in ("_mark_step", "_sync_multi"):
            patches.wrap(core, name, lambda before: _nothing)
        overrides = Overrides()
        patches.also(overrides.close)
        for name, replacement in (
            ("_to_copy", _to_copy),
            ("_copy_from", _copy),
            ("_copy_from_and_resize", _copy),
        ):
            operation = getattr(torch.ops.aten, name).default
            original = private("torch.library", "get_kernel")(operation, LAZY_KEY)
            overrides.replace(operation, LAZY_KEY, replacement(original.call_boxed))
    try:
        yield
    finally:
        patches.undo()


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Execute nothing."""


def _keys() -> Any:
    return private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), LAZY_KEY))


def _to_copy(original: Callable[..., Any]) -> Callable[..., Any]:
    keys = _keys()

    def copy(tensor: torch.Tensor, **options: Any) -> Any:
        wanted = options.get("device")
        if tensor.device.type == "lazy" and wanted is not None and torch.device(wanted).type != "lazy":
            return torch.zeros(tensor.shape, dtype=options.get("dtype") or tensor.dtype, device=wanted)
        return original(keys, tensor, **options)

    return copy


def _copy(original: Callable[..., Any]) -> Callable[..., Any]:
    keys = _keys()

    def copy(source: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
        if source.device.type == "lazy" and target.device.type != "lazy":
            return target.resize_(source.shape).zero_()
        return original(keys, source, target, *args)

    return copy
