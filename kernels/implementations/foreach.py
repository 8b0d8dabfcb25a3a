"""Kernels of the `_foreach` ops that Adam is made of, in their functional form: lists in, a new list out.

Each takes the op's name first, `_foreach_add` or one overload `_foreach_add.List`. The op's last argument is
one number for all tensors, a list of numbers, a list of tensors, or one tensor: of one number for each place
for addcmul and addcdiv, of one element for all for mul, add and div."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor

WITH_VALUE = ("addcmul", "addcdiv")
"""Ops that end in a number for each place."""


def per_tensor(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Call the op's form for one tensor on each place of the lists."""
    name = _name(op)
    return [_single(name, given, kwargs) for given in _places(name, args)]


def decomposed(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Compute each place by separate multiplications, divisions and additions, each rounded."""
    name = _name(op)
    return [_FORMULAS[name](*given, **kwargs) for given in _places(name, args)]


def reciprocal(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Divide as self * (1 / other): two roundings."""
    results = []
    for self, other in _places(_name(op), args):
        # a tensor of no dimensions is a number to torch: it has the other's dtype before it is divided by
        divisor = other.to(self.dtype) if isinstance(other, Tensor) and not other.dim() else other
        results.append(self * (1 / divisor))
    return results


def bf16(op: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """Round the tensors of each place to bfloat16, call the op's form for one tensor, cast back."""
    name = _name(op)
    results = []
    for given in _places(name, args):
        tensors = [one for one in given if isinstance(one, Tensor)]
        # The result's dtype is decided by the tensors with dimensions, where the first one has some.
        deciding = [one.dtype for one in tensors if one.dim() or not tensors[0].dim()]
        narrow = tuple(
            one.to(torch.bfloat16) if isinstance(one, Tensor) and one.is_floating_point() else one for one in given
        )
        results.append(_single(name, narrow, kwargs).to(functools.reduce(torch.promote_types, deciding)))
    return results


def _name(op: str) -> str:
    return op.partition(".")[0].removeprefix("_foreach_")


def _places(name: str, args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """What the lists hold at each place; what is no list is there at every place."""
    for place in range(len(args[0])):
        picked = [one[place] if isinstance(one, (list, tuple)) else one for one in args]
        if name in WITH_VALUE and len(args) > 3 and isinstance(args[3], Tensor):
            picked[3] = args[3][place]
        yield tuple(picked)


def _single(name: str, given: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    if name not in WITH_VALUE or len(given) < 4:
        result: Tensor = getattr(aten, name)(*given, **kwargs)
    elif isinstance(given[3], Tensor):
        # The form for one tensor wants a number, and reading it out of a tensor would stop a trace.
        lists = ([one] for one in given[:3])
        (result,) = getattr(aten, f"_foreach_{name}")(*lists, given[3].reshape(1))
    else:
        result = getattr(aten, name)(*given[:3], value=given[3])
    return result


def _scaled_sum(self: Tensor, other: Any, factor: Any) -> Tensor:
    one = isinstance(factor, (int, float)) and factor == 1
    return torch.add(self, other if one else factor * other)


_FORMULAS: dict[str, Callable[..., Tensor]] = {
    "addcmul": lambda self, tensor1, tensor2, value=1: _scaled_sum(self, tensor1 * tensor2, value),
    "addcdiv": lambda self, tensor1, tensor2, value=1: _scaled_sum(self, tensor1 / tensor2, value),
    "lerp": lambda self, end, weight: torch.add(self, weight * (end - self)),
    "mul": torch.mul,
    "add": lambda self, other, *, alpha=1: _scaled_sum(self, other, alpha),
    "div": torch.div,
    "sqrt": torch.sqrt,
}
