"""Kernels of Adam's `_foreach` ops in their functional form: lists in, a new list out.

The first argument of a kernel is the op's name: `_foreach_add`, or with an overload `_foreach_add.List`. The last
argument of the op is one number for all tensors, a list of numbers, a list of tensors, or one tensor. For addcmul and
addcdiv, this one tensor has a number for each place in the lists; for mul, add and div, it has one element for all
places."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor

WITH_VALUE = ("addcmul", "addcdiv")
"""Ops whose last argument may be a tensor with one number for each place in the lists."""


def per_tensor(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Call the op's single-tensor form for each place in the lists."""
    name = _name(op)
    return [_single(name, arguments, kwargs) for arguments in _places(name, args)]


def decomposed(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Compute the result for each place with separate multiplications, divisions and additions, each rounded."""
    name = _name(op)
    return [_FORMULAS[name](*arguments, **kwargs) for arguments in _places(name, args)]


def reciprocal(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Divide by computing self * (1 / other), which rounds twice."""
    results = []
    for self, other in _places(_name(op), args):
        # like a number, a tensor without dimensions is converted to the dividend's dtype before the division
        divisor = other.to(self.dtype) if isinstance(other, Tensor) and not other.dim() else other
        results.append(self * (1 / divisor))
    return results


def bf16(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Round the tensors of each place to bfloat16, call the op's single-tensor form, and cast back."""
    name = _name(op)
    results = []
    for arguments in _places(name, args):
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        # If the first tensor has dimensions, only tensors with dimensions decide the result's dtype.
        deciding = [tensor.dtype for tensor in tensors if tensor.dim() or not tensors[0].dim()]
        narrow = tuple(
            argument.to(torch.bfloat16) if isinstance(argument, Tensor) and argument.is_floating_point() else argument
            for argument in arguments
        )
        results.append(_single(name, narrow, kwargs).to(functools.reduce(torch.promote_types, deciding)))
    return results


def _name(op: str) -> str:
    return op.partition(".")[0].removeprefix("_foreach_")


def _places(name: str, args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of each place: the elements of lists, and other arguments unchanged."""
    for place in range(len(args[0])):
        picked = [argument[place] if isinstance(argument, (list, tuple)) else argument for argument in args]
        if name in WITH_VALUE and len(args) > 3 and isinstance(args[3], Tensor):
            picked[3] = args[3][place]
        yield tuple(picked)


def _single(name: str, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    if name not in WITH_VALUE or len(arguments) < 4:
        result: Tensor = getattr(aten, name)(*arguments, **kwargs)
    elif isinstance(arguments[3], Tensor):
        # The single-tensor form needs a number, and reading it out of a tensor would stop a trace.
        lists = ([tensor] for tensor in arguments[:3])
        (result,) = getattr(aten, f"_foreach_{name}")(*lists, arguments[3].reshape(1))
    else:
        result = getattr(aten, name)(*arguments[:3], value=arguments[3])
    return result


def _scaled_sum(self: Tensor, other: Any, factor: Any) -> Tensor:
    is_one = isinstance(factor, (int, float)) and factor == 1
    return torch.add(self, other if is_one else factor * other)


_FORMULAS: dict[str, Callable[..., Tensor]] = {
    "addcmul": lambda self, tensor1, tensor2, value=1: _scaled_sum(self, tensor1 * tensor2, value),
    "addcdiv": lambda self, tensor1, tensor2, value=1: _scaled_sum(self, tensor1 / tensor2, value),
    "lerp": lambda self, end, weight: torch.add(self, weight * (end - self)),
    "mul": torch.mul,
    "add": lambda self, other, *, alpha=1: _scaled_sum(self, other, alpha),
    "div": torch.div,
    "sqrt": torch.sqrt,
}
