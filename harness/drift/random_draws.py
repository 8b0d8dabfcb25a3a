"""Where the random generators of two runs are at other states, and whether that can matter.

A journal holds a digest of each generator's state at the beginning of every step. A generator whose state changes
between two steps was drawn from. One that differs and that neither run draws from afterwards changes nothing: a compiler
may have drawn from it while it was at work.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..runs.journal import StepRecord
from ..runs.recorded_run import RecordedRun
from .recorded_drift import common_steps


@dataclass(frozen=True, slots=True)
class GeneratorDifference:
    """`generator` (torch, python, numpy or a device) is at another state before `step` for the first time.

    `drawn` is the step in which the runs drew different numbers from it; None when it began otherwise. `used` says
    whether the difference can have changed something: both runs drew in that step, or the reference alone, or
    one of them draws later on.
    """

    step: int
    generator: str
    drawn: int | None
    used: bool


def generator_differences(a: RecordedRun, b: RecordedRun) -> list[GeneratorDifference]:
    """The first difference of each generator, in the order of steps."""
    records = common_steps(a.journal, b.journal)
    names = dict.fromkeys(
        name for ours, theirs in records for name in ours.generators if name in theirs.generators
    )
    found = [one for name in names if (one := _first(name, records)) is not None]
    return sorted(found, key=lambda one: one.step)


def _first(name: str, records: list[tuple[StepRecord, StepRecord]]) -> GeneratorDifference | None:
    ours = [record.generators.get(name) for record, _ in records]
    theirs = [record.generators.get(name) for _, record in records]
    unequal = [
        place
        for place, (left, right) in enumerate(zip(ours, theirs, strict=True))
        if left is not None and right is not None and left != right
    ]
    if not unequal:
        return None
    first = unequal[0]
    drawn = records[first - 1][0].step if first else None
    # The reference drew in the step before: what it drew, the other run drew elsewhere or not at all.
    used = (first > 0 and ours[first - 1] != ours[first]) or _moves(ours[first:]) or _moves(theirs[first:])
    return GeneratorDifference(records[first][0].step, name, drawn, used)


def _moves(states: list[str | None]) -> bool:
    return len({state for state in states if state is not None}) > 1
