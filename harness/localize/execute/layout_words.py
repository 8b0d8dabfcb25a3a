"""Arguments that the two sides lay out differently, and layouts in words.

>>> x = torch.arange(6.0).reshape(2, 3)
>>> for tensor in x, relaid(x, LaidOut((2, 3), (1, 2), 0)), relaid(x, LaidOut((2, 3), (3, 1), 4)):
...     print(in_words(LaidOut.of(tensor)))
contiguous (3, 1)
transposed (1, 2)
contiguous (3, 1), beginning 4 bytes off a 64-byte boundary
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...tape.replaying.laid_out import LaidOut
from ..align.storage_flow import SIDES, Side


@dataclass(frozen=True, slots=True)
class RelaidArgument:
    """An argument that the two sides lay out differently.

    number: the number of the argument, counted from 1.
    name: the name of the argument in the op's schema.
    lies: the layout of the argument on each side.
    copied_by: by side, the op (with its line) that makes the argument, if only this side executes that op.
    within: the sides whose compiled code itself lays out the argument.
    """

    number: int
    name: str
    lies: Mapping[Side, LaidOut]
    copied_by: Mapping[Side, str]
    within: tuple[Side, ...] = ()


def in_words(layout: LaidOut, *, start: bool | None = None) -> str:
    """Describe a tensor's layout.

    `start` decides whether to mention where the tensor begins. If `start` is None, a beginning is mentioned only if it
    is off a 64-byte boundary.
    """
    words = f"{look_at(layout)} {_tuple(layout.stride)}"
    if layout.start if start is None else start:
        off = f"{layout.start} bytes off" if layout.start else "at"
        return f"{words}, beginning {off} a 64-byte boundary"
    return words


def looks_of(arguments: Sequence[RelaidArgument]) -> tuple[str, ...]:
    """Return how these arguments' layouts differ, by their usual names: `transposed against contiguous`."""
    looks = []
    for argument in arguments:
        look = " against ".join(look_at(argument.lies[side]) for side in SIDES)
        same_stride = argument.lies["a"].stride == argument.lies["b"].stride
        looks.append("beginning elsewhere relative to a 64-byte boundary" if same_stride else look)
    return tuple(sorted(set(looks)))


def both_in_words(argument: RelaidArgument, labels: Mapping[Side, str]) -> str:
    """Describe an argument with both of its layouts and the ops that made them."""
    begins = argument.lies["a"].start != argument.lies["b"].start
    sides = []
    for side in SIDES:
        makers = f"{',' * begins} made by {argument.copied_by[side]}" if side in argument.copied_by else ""
        makers += " within its generated code" if side in argument.within else ""
        sides.append(f"{in_words(argument.lies[side], start=begins)}{makers} in {labels[side]}")
    return f"argument {argument.number} ({argument.name}): {', '.join(sides)}"


def _tuple(stride: Sequence[int]) -> str:
    return f"({', '.join(map(str, stride))}{',' if len(stride) == 1 else ''})"


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""The order of the dimensions in memory, from the slowest to the fastest, by the number of dimensions."""


def look_at(layout: LaidOut) -> str:
    """Return the usual name of a layout."""
    size, stride, dims = layout.size, layout.stride, len(layout.size)
    if any(not step and n > 1 for n, step in zip(size, stride, strict=True)):
        return "expanded"
    # With a single channel or pixel, "contiguous" and "channels last" both apply: the strides of the dimensions of
    # size 1 decide.
    if dims in CHANNELS_LAST and 1 in size and tuple(stride) == _strides(size, CHANNELS_LAST[dims]):
        return "channels last" if tuple(stride) != _strides(size, range(dims)) else "contiguous"
    if _is_dense(size, stride, range(dims)):
        return "contiguous"
    if dims in CHANNELS_LAST and _is_dense(size, stride, CHANNELS_LAST[dims]):
        return "channels last"
    if dims >= 2 and _is_dense(size, stride, (*range(dims - 2), dims - 1, dims - 2)):
        return "transposed"
    if _is_dense(size, stride, sorted(range(dims), key=lambda dim: (-stride[dim], dim))):
        return "permuted"
    return "with gaps"


def _strides(size: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor with its dimensions in this order."""
    steps = {dim: math.prod(max(1, size[inner]) for inner in order[place + 1 :]) for place, dim in enumerate(order)}
    return tuple(steps[dim] for dim in range(len(size)))


def _is_dense(size: Sequence[int], stride: Sequence[int], order: Sequence[int]) -> bool:
    """Check whether a tensor is dense with its dimensions in this order. The strides of dimensions of size 1 are
    ignored."""
    dense = _strides(size, order)
    return 0 in size or all(n == 1 or own_step == step for n, own_step, step in zip(size, stride, dense, strict=True))
