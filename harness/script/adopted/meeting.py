"""CPU tensors that meet tensors of the mode's device, in a script that never mentions a device.

This code is in a separate file because the count of the script's operators skips this file's frames: see `ON_BEHALF` in
`backends/called_operators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

READS = frozenset({"numpy", "__array__", "__dlpack__"})
"""Functions that pass a tensor's values to other libraries. This is possible only on the CPU."""

ACROSS = frozenset({"to", "type_as", "_pack_padded_sequence", "tensor_split", "grad", "backward"})
"""Functions that accept tensors of both devices.

Each of them copies values between the devices, needs some arguments (counts) on the CPU, or traverses an autograd graph
with such copies, in which a moved tensor would be a different tensor.
"""

FOLLOWS_FIRST = frozenset({"__getitem__", "index_select", "__setitem__", "__set__"})
"""Functions that run on the device of their first argument. A whole data set, for example, must not be moved because
the index into it is on the device."""


class Meeting(TorchFunctionMode):
    """Moves CPU tensors to `device` for the call in which they meet a tensor of that device.

    Writes to a CPU tensor are executed on the CPU, since other tensors of the script may share the memory.
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
        # Most calls return here, because all of their tensors are on the CPU.
        on_device = [tensor for tensor in tensors if not tensor.is_cpu and tensor.device.type == self._kind]
        if not on_device:
            return func(*args, **named)
        name = getattr(func, "__name__", "")
        if name in READS:
            return func(args[0].cpu(), *args[1:], **named)
        if len(on_device) == len(tensors) or name in ACROSS:
            return func(*args, **named)
        # `add_` and `__iadd__` work in place; `__init__` and `__int__` do not.
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
    """Return `value` with its tensors moved to `target`. If `target` is a device, only CPU tensors are moved."""
    if isinstance(value, torch.Tensor):
        return value if value.is_cpu == (target == "cpu") else value.to(target)
    if isinstance(value, dict):
        return {name: moved(item, target) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, target) for item in value))
    if type(value) in (list, tuple):
        return type(value)(moved(item, target) for item in value)
    return value
