"""Tensors of the CPU that meet tensors of the mode's device, in a script that never mentions a device.

This is a file of its own, since the counting of the script's operators passes over its frames: `ON_BEHALF` of
`backends/called_operators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

READS = frozenset({"numpy", "__array__", "__dlpack__"})
"""Functions that give the values away, which is possible on the CPU only."""

ACROSS = frozenset({"to", "type_as", "_pack_padded_sequence", "tensor_split", "grad", "backward"})
"""Functions that take tensors of both devices.

They carry values from one to the other, want their counts on the CPU, or go through a graph that does, in which a
moved tensor would be another.
"""

FOLLOWS_FIRST = frozenset({"__getitem__", "index_select", "__setitem__", "__set__"})
"""Functions that run where their first argument is: a whole data set does not move because its index did."""


class Meeting(TorchFunctionMode):
    """Moves tensors of the CPU to `device` for the call in which they meet a tensor of that device.

    Writes into a tensor of the CPU are done on the CPU: the script may hold the memory by another name.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self._kind = device.partition(":")[0]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        tensors = list(_tensors([args, named]))
        # Most calls end here: everything is still on the CPU.
        on_device = [tensor for tensor in tensors if not tensor.is_cpu and tensor.device.type == self._kind]
        if not on_device:
            return func(*args, **named)
        name = getattr(func, "__name__", "")
        if name in READS:
            return func(args[0].cpu(), *args[1:], **named)
        if len(on_device) == len(tensors) or name in ACROSS:
            return func(*args, **named)
        # `add_` and `__iadd__` are in place, and neither `__init__` nor `__int__` is.
        in_place = name.endswith("_") and not name.endswith("__")
        if name.startswith("__i") and name.endswith("__"):
            in_place = name not in ("__index__", "__int__", "__invert__", "__iter__")
        written = named.get("out")
        if written is None and args and (name in FOLLOWS_FIRST or in_place):
            written = args[0]
        target = "cpu" if any(tensor.is_cpu for tensor in _tensors(written)) else self._device
        return func(*moved(args, target), **moved(named, target))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def moved(value: Any, target: str) -> Any:
    """Return `value` with tensors of the other side moved; a value that is where it belongs is returned itself."""
    if isinstance(value, torch.Tensor):
        return value if value.is_cpu == (target == "cpu") else value.to(target)
    if isinstance(value, dict):
        return {name: moved(item, target) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, target) for item in value))
    if type(value) in (list, tuple):
        return type(value)(moved(item, target) for item in value)
    return value
