"""The configuration of an operator's call: what of its arguments may decide whether a backend can do it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .. import torch_private


def configuration(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: str) -> str:
    """The arguments of a call as `float32[4,4], float32[4], dim=1`: tensors by dtype and shape, whole numbers and
    switches by their value, other numbers by their type alone, since a learning rate changes with every step.

    A tensor that is not on `device` is named with its own. Values are never read.
    """
    described = []
    for position, one in enumerate(torch_private.arguments_of(operation)):
        given = position < len(args) or one.name in kwargs
        value = args[position] if position < len(args) else kwargs.get(one.name)
        if not given or value is None or one.name in ("device", "pin_memory", "layout"):
            continue
        text = described_value(value, device)
        is_tensor = isinstance(value, torch.Tensor) or text.startswith("(")
        described.append(text if is_tensor else f"{one.name}={text}")
    return ", ".join(described)


def described_value(value: Any, device: str) -> str:
    if isinstance(value, torch.Tensor):
        elsewhere = "" if value.device.type == device else f" on {value.device.type}"
        return tensor_text(value) + elsewhere
    if isinstance(value, (list, tuple)):
        items = ", ".join(described_value(one, device) for one in value)
        return f"({items})" if any(isinstance(one, torch.Tensor) for one in value) else f"[{items}]"
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, (float, complex)):
        return type(value).__name__
    if isinstance(value, torch.Generator):
        return "generator"
    return str(value).removeprefix("torch.")


def tensor_text(tensor: torch.Tensor) -> str:
    """A tensor by dtype and shape: `float32[4,4]`."""
    return shape_text(str(tensor.dtype).removeprefix("torch."), tensor.shape)


def shape_text(dtype: str, shape: Iterable[Any]) -> str:
    return f"{dtype}[{','.join(str(size) for size in shape)}]"


def tensors_among(values: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument or result, those in lists included."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for one in values:
            yield from tensors_among(one)


def instruction(kind: str, outputs: Any, inputs: str) -> str:
    """An operator as one instruction of a backend that has no text for it: `complex64[4] aten::mul(float32[4])`."""
    made = ", ".join(tensor_text(one) for one in tensors_among(outputs))
    return f"{made} {kind}({inputs})".lstrip()
