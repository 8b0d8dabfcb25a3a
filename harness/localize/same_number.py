"""Calls that carry the same wrong number are one cause, though they are of several ops.

An optimizer uses one hyper-parameter in several ops of a step, each of which has made its own number of it:

    lr 0.01 against 0.015           mul 0.9999 against 0.99985     1 - lr * decay
                                    addcdiv -0.01 against -0.015   -lr
    beta 0.9 against 0.8            lerp 0.1 against 0.2           1 - beta
                                    addcdiv -0.053 against -0.028  -lr / (1 - beta ** t), here in step t = 2

    >>> is_of_one((0.9999, 0.99985), (-0.01, -0.015), 2), is_of_one((0.1, 0.2), (-0.01 / 0.19, -0.01 / 0.36), 2)
    (True, True)
    >>> is_of_one((0.9999, 0.99985), (0.9, 0.8), 2)
    False
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..records.culprit import ARGUMENTS
from .hybrid import TapePair
from .storage_flow import SIDES
from .swap_sites import Cause, Groups, joined_causes
from .value_links import arguments_of

Numbers = tuple[float, float]
"""What both sides are told in one place."""

ALIKE = 1e-6
"""Relative distance up to which two numbers are one, computed in other ways."""


def of_one_number(pair: TapePair, causes: Sequence[Cause]) -> list[Cause]:
    """The causes, those of the optimizer joined whose numbers are made of one that differs."""
    told = {place: one for place, cause in enumerate(causes) if (one := _told(pair, cause)) is not None}
    groups, count = Groups(told), pair.flows["a"].tape.step + 1
    for place, numbers in told.items():
        for earlier in (one for one in told if one < place):
            if is_of_one(told[earlier], numbers, count) or is_of_one(numbers, told[earlier], count):
                groups.join(earlier, place)
    joined = {members[0]: members for members in groups.members()}
    followers = {place for members in joined.values() for place in members[1:]}
    found = []
    for place, cause in enumerate(causes):
        parts = [causes[one] for one in joined.get(place, ())]
        if len(parts) > 1:
            said = ", ".join(f"{one.ops['a'][0]} {', '.join(one.reasons)}" for one in parts)
            found.append(joined_causes(parts, (f"one number in several ops: {said}",)))
        elif place not in followers:
            found.append(cause)
    return found


def _told(pair: TapePair, cause: Cause) -> Numbers | None:
    """The one pair of numbers in which the calls of a cause in the optimizer differ; None where it is another cause."""
    if cause.kind != ARGUMENTS or cause.phase != "optimizer":
        return None
    found: set[Numbers] = set()
    for site in cause.sites:
        block = pair.blocks[site.lead]
        if not block.is_pair:
            return None
        left, right = (pair.flows[side].nodes[block.of(side)[0]] for side in SIDES)
        for (mine, _), (yours, _) in zip(arguments_of(left), arguments_of(right), strict=False):
            if isinstance(mine, int | float) and isinstance(yours, int | float) and mine != yours:
                found.add((float(mine), float(yours)))
    return found.pop() if len(found) == 1 else None


def is_of_one(known: Numbers, made: Numbers, count: int) -> bool:
    """Whether both numbers change as if they were made of one hyper-parameter, in the optimizer's step of that count
    from 1: as x or 1 - x, times whatever is the same on both sides, or by the bias corrections of Adam."""
    return any(
        math.isclose(after * before_x, before * after_x, rel_tol=ALIKE)
        for before, after in _forms(made)
        for before_x, after_x in (*_forms(known), *_corrections(known, count))
        if before * before_x and after * after_x
    )


def _forms(numbers: Numbers) -> list[Numbers]:
    return [numbers, (1 - numbers[0], 1 - numbers[1])]


def _corrections(numbers: Numbers, count: int) -> Iterator[Numbers]:
    for a, b in _forms(numbers):
        if 0 < a < 1 and 0 < b < 1:
            x, y = 1 - a**count, 1 - b**count
            yield from ((x, y), (1 / x, 1 / y), (math.sqrt(x), math.sqrt(y)), (1 / math.sqrt(x), 1 / math.sqrt(y)))
