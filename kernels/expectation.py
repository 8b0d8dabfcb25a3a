"""What an op returns for given arguments: shapes, strides and dtypes.

The op itself is asked, once for each kind of arguments, on zeros. Its meta kernel would be cheaper and is not
always right: on a CPU it gives float32 statistics for `native_layer_norm` of bfloat16, where the CPU's kernel
gives bfloat16 (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

LAZY_DEVICES = ("lazy", "xla")
"""Where an op has no value when it is called; what it returns is asked on the CPU instead."""


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """One tensor that an op returns. `stride` is in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument or result, in order, those in lists included."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)


class Expectations:
    """What ops return, remembered by the kind of their arguments."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[ExpectedTensor, ...]] = {}

    def of(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[ExpectedTensor, ...]:
        """The tensors that `overload` returns for such arguments; raises what the op raises for them."""
        named = sorted(kwargs.items())
        key = (overload, _kind(args), tuple((name, _kind(value)) for name, value in named))
        if key not in self._known:
            result = overload(*[_zeros(one) for one in args], **{name: _zeros(one) for name, one in named})
            self._known[key] = tuple(
                ExpectedTensor(tuple(one.shape), one.stride(), one.dtype) for one in tensors_in(result)
            )
        return self._known[key]


def meta_outputs(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[ExpectedTensor]:
    """What the op's meta kernel says, which is what compilers go by."""
    result = overload(
        *[_on_meta(one) for one in args], **{name: _on_meta(one) for name, one in kwargs.items()}
    )
    return [ExpectedTensor(tuple(one.shape), one.stride(), one.dtype) for one in tensors_in(result)]


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_on_meta(one) for one in value)
    return value


def _kind(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        stride = None if value.device.type in LAZY_DEVICES else value.stride()
        return value.shape, stride, value.dtype, value.device
    if isinstance(value, (list, tuple)):
        return tuple(_kind(one) for one in value)
    # A float (a learning rate that changes every step) has no say in shapes and dtypes.
    return float if isinstance(value, float) else (type(value), repr(value))


def _zeros(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device.type in LAZY_DEVICES:
            return torch.zeros(value.shape, dtype=value.dtype)
        strided = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return strided.zero_()
    if isinstance(value, (list, tuple)):
        return type(value)(_zeros(one) for one in value)
    return value
