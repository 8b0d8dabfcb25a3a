"""The causes that come from one wrong number in the arguments of several ops.

An optimizer uses one hyper-parameter in several ops of a step. Each op receives a number derived from it:

    lr 0.01 against 0.015           mul 0.9999 against 0.99985     1 - lr * decay
                                    addcdiv -0.01 against -0.015   -lr
    beta 0.9 against 0.8            lerp 0.1 against 0.2           1 - beta
                                    addcdiv -0.053 against -0.028  -lr / (1 - beta ** t), here in step t = 2

    >>> have_same_source((0.9999, 0.99985), (-0.01, -0.015), 2)
    True
    >>> have_same_source((0.1, 0.2), (-0.01 / 0.19, -0.01 / 0.36), 2)
    True
    >>> have_same_source((0.9999, 0.99985), (0.9, 0.8), 2)
    False
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...records.results.culprit import ARGUMENTS
from ..align.storage_flow import SIDES
from ..causes.block_joining import Groups
from ..causes.site_causes import Cause, joined_causes
from ..execute.tape_pair import TapePair

Numbers = tuple[float, float]
"""Both sides' numbers at one place: side a's, then side b's."""

ALIKE = 1e-6
"""The relative distance up to which two numbers count as one number that was computed in two ways."""


def with_same_number_joined(pair: TapePair, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes. Those of the optimizer are joined if their numbers may derive from one number that differs."""
    numbers_of = {
        place: differing for place, cause in enumerate(causes) if (differing := _only_numbers(pair, cause)) is not None
    }
    groups, count = Groups(numbers_of), pair.flows["a"].tape.step + 1
    for place, numbers in numbers_of.items():
        for earlier in (place_before for place_before in numbers_of if place_before < place):
            before = numbers_of[earlier]
            if have_same_source(before, numbers, count) or have_same_source(numbers, before, count):
                groups.join(earlier, place)
    joined = {members[0]: members for members in groups.members()}
    followers = {place for members in joined.values() for place in members[1:]}
    merged = []
    for place, cause in enumerate(causes):
        parts = [causes[member] for member in joined.get(place, ())]
        if len(parts) > 1:
            listed = ", ".join(f"{part.ops['a'][0]} {', '.join(part.reasons)}" for part in parts)
            merged.append(joined_causes(parts, (f"one differing number, used in several ops: {listed}",)))
        elif place not in followers:
            merged.append(cause)
    return merged


def _only_numbers(pair: TapePair, cause: Cause) -> Numbers | None:
    """If the calls of a cause are in the optimizer and differ in exactly one pair of numbers, return that pair.
    Otherwise, return None."""
    if cause.kind != ARGUMENTS or cause.phase != "optimizer":
        return None
    numbers: set[Numbers] = set()
    for site in cause.sites:
        block = pair.blocks[site.lead]
        if not block.is_pair:
            return None
        node_a, node_b = (pair.flows[side].nodes[block.of(side)[0]] for side in SIDES)
        for (value_a, _), (value_b, _) in zip(node_a.arguments, node_b.arguments, strict=False):
            if isinstance(value_a, int | float) and isinstance(value_b, int | float) and value_a != value_b:
                numbers.add((float(value_a), float(value_b)))
    return numbers.pop() if len(numbers) == 1 else None


def have_same_source(source: Numbers, derived: Numbers, count: int) -> bool:
    """Check whether both pairs of numbers can derive from one hyper-parameter x.

    A number may be x or 1 - x, may have a factor that is the same on both sides, and may include the bias corrections
    of Adam. `count` is the number of the optimizer's step, counted from 1.
    """
    return any(
        math.isclose(after * before_x, before * after_x, rel_tol=ALIKE)
        for before, after in _forms(derived)
        for before_x, after_x in (*_forms(source), *_corrections(source, count))
        if before * before_x and after * after_x
    )


def _forms(numbers: Numbers) -> list[Numbers]:
    return [numbers, (1 - numbers[0], 1 - numbers[1])]


def _corrections(numbers: Numbers, count: int) -> Iterator[Numbers]:
    for a, b in _forms(numbers):
        if 0 < a < 1 and 0 < b < 1:
            x, y = 1 - a**count, 1 - b**count
            yield from ((x, y), (1 / x, 1 / y), (math.sqrt(x), math.sqrt(y)), (1 / math.sqrt(x), 1 / math.sqrt(y)))
