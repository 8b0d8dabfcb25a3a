"""Tensors of the CPU that meet tensors of the mode's device, in a script that never spoke of a device.

A file of its own, since what counts the script's operators passes over its frames: `ON_BEHALF` of
`backends/called_operators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

READS = frozenset({"numpy", "__array__", "__dlpack__"})
"""What gives the values away, and can only do that on the CPU."""

ACROSS = frozenset({"to", "type_as", "_pack_padded_sequence", "tensor_split", "grad", "backward"})
"""What takes tensors of both: it carries from one to the other, wants its counts on the CPU, or goes through
a graph that does, in which a moved tensor would be another."""

FOLLOWS_FIRST = frozenset({"__getitem__", "index_select", "__setitem__", "__set__"})
"""What happens where its first argument is: a whole data set does not move because its index did."""


class Meeting(TorchFunctionMode):
    """Moves tensors of the CPU to `device` for the call in which they meet one that is there.

    What writes into a tensor of the CPU is done on the CPU: the script may hold the memory by another name.
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
        # Most calls end here: everything is on the CPU still.
        there = [one for one in tensors if not one.is_cpu and one.device.type == self._kind]
        if not there:
            return func(*args, **named)
        name = getattr(func, "__name__", "")
        if name in READS:
            return func(args[0].cpu(), *args[1:], **named)
        if len(there) == len(tensors) or name in ACROSS:
            return func(*args, **named)
        # In place are `add_` and `__iadd__`, and neither `__init__` nor `__int__`.
        in_place = name.endswith("_") and not name.endswith("__")
        if name.startswith("__i") and name.endswith("__"):
            in_place = name not in ("__index__", "__int__", "__invert__", "__iter__")
        written = named.get("out")
        if written is None and args and (name in FOLLOWS_FIRST or in_place):
            written = args[0]
        target = "cpu" if any(one.is_cpu for one in _tensors(written)) else self._device
        return func(*moved(args, target), **moved(named, target))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)


def moved(value: Any, target: str) -> Any:
    """The same with tensors of the other side moved; what is where it belongs is given itself."""
    if isinstance(value, torch.Tensor):
        return value if value.is_cpu == (target == "cpu") else value.to(target)
    if isinstance(value, dict):
        return {name: moved(one, target) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one, target) for one in value))
    if type(value) in (list, tuple):
        return type(value)(moved(one, target) for one in value)
    return value
