"""The shapes, strides and dtypes that an op returns for its arguments.

The op itself is executed, once for each kind of arguments, on zeros. Its meta kernel would be cheaper but is not
always right: for `native_layer_norm` of bfloat16 on a CPU, it returns float32 statistics, but the CPU's kernel returns
bfloat16 (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.harness.torch_private.deferred.deferred_devices import DEFERRED_DEVICES


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """One tensor that an op returns. `stride` is in elements; `position` is the tensor's index among all results,
    including those that are not tensors."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    position: int


def leaves_in(value: Any) -> Iterator[Any]:
    """Yield the parts of an argument or result in order: its tensors and everything else that is not a list."""
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from leaves_in(element)
    else:
        yield value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument or result in order, including those in lists."""
    return (leaf for leaf in leaves_in(value) if isinstance(leaf, torch.Tensor))


Stand = Callable[[torch.Tensor], torch.Tensor]
"""Creates the tensor that replaces an argument when an op is executed only to describe its results."""


class Expectations:
    """The tensors that ops return, cached by the kind of their arguments.

    `stand` creates the tensors with which the ops are called: zeros, or tensors without values (`on_meta`). Called with
    tensors without values, an op executes its meta kernel, on which compilers rely.
    """

    def __init__(self, stand: Stand | None = None) -> None:
        self._stand = stand or zeros
        self._cached: dict[Hashable, tuple[ExpectedTensor, ...]] = {}

    def of(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[ExpectedTensor, ...]:
        """Describe the tensors that `overload` returns for arguments of this kind. Raises the op's own errors."""
        named = sorted(kwargs.items())
        key = (overload, _kind(args), tuple((name, _kind(value)) for name, value in named))
        if key not in self._cached:
            positional = [_replaced(argument, self._stand) for argument in args]
            result = overload(*positional, **{name: _replaced(argument, self._stand) for name, argument in named})
            self._cached[key] = tuple(
                ExpectedTensor(tuple(leaf.shape), leaf.stride(), leaf.dtype, position)
                for position, leaf in enumerate(leaves_in(result))
                if isinstance(leaf, torch.Tensor)
            )
        return self._cached[key]


def zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Return zeros with the tensor's shape, strides, dtype and device. If the device defers its computations, the zeros
    are contiguous and on the CPU."""
    if tensor.device.type in DEFERRED_DEVICES:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    # empty_strided, because torch.zeros_like does not keep all strides (for example, not those of an expanded tensor)
    strided = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return strided.zero_()


def on_meta(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same shape, strides and dtype, but without values."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _replaced(value: Any, stand: Stand) -> Any:
    if isinstance(value, torch.Tensor):
        return stand(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(element, stand) for element in value)
    return value


def _kind(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        stride = None if value.device.type in DEFERRED_DEVICES else value.stride()
        return value.shape, stride, value.dtype, value.device
    if isinstance(value, (list, tuple)):
        return tuple(_kind(element) for element in value)
    # A float (for example, a learning rate that changes in every step) does not affect shapes and dtypes.
    return float if isinstance(value, float) else (type(value), repr(value))
