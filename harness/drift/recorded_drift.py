"""Compares what two runs recorded bit for bit, from the first value that was computed to the last; and their
random generators."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..records.digest_record import Digest
from ..runs.journal import Journal, StepDigests, StepRecord
from ..runs.recorded_run import RecordedRun

INPUTS = ("initial", "generator", "batch")
"""What goes into the steps, not what they compute."""


@dataclass(frozen=True, slots=True)
class RecordedDifference:
    """The first thing that differs: `what` is initial, generator, batch, loss, gradient, value or steps."""

    step: int
    what: str
    name: str


def common_digests(a: Journal, b: Journal) -> Iterator[tuple[int, StepDigests, StepDigests]]:
    """The digests of each step that both runs have them of, in order."""
    others = b.digests()
    theirs = next(others, None)
    for step, ours in a.digests():
        while theirs is not None and theirs[0] < step:
            theirs = next(others, None)
        if theirs is None:
            return
        if theirs[0] == step:
            yield step, ours, theirs[1]


def common_steps(a: Journal, b: Journal) -> list[tuple[StepRecord, StepRecord]]:
    """The records of each step that both runs have, in order."""
    others = {record.step: record for record in b.steps}
    return [(record, others[record.step]) for record in a.steps if record.step in others]


def bits(digest: Digest | None) -> tuple[int, int] | None:
    """What decides on equality: statistics of equal tensors may be NaN, which equals nothing."""
    return None if digest is None else (digest.hash, digest.numel)


def differences(a: RecordedRun, b: RecordedRun) -> Iterator[RecordedDifference]:
    """The first difference of the initial values, then those of every step, then missing steps.

    Of one step the first of the generators, batches, losses, gradients and values each. What one run did not
    record is left out, and so is what a damaged journal lacks.
    """
    if (name := _first(*_readable(_initial(a.journal), _initial(b.journal)))) is not None:
        yield RecordedDifference(0, "initial", name)
    for step, groups in _groups_of_steps(a.journal, b.journal):
        for what, left, right in groups:
            if (name := _first(left, right)) is not None:
                yield RecordedDifference(step, what, name)
    counts = [len(run.journal.steps) for run in (a, b)]
    if counts[0] != counts[1] and not (a.journal.damage or b.journal.damage):
        yield RecordedDifference(min(counts), "steps", f"{counts[0]} against {counts[1]} steps")


def first_computed_difference(a: RecordedRun, b: RecordedRun) -> int | None:
    """The first step at which something that a step computes differs; what goes into it does not count."""
    for step, groups in _groups_of_steps(a.journal, b.journal):
        if any(what not in INPUTS and _first(left, right) is not None for what, left, right in groups):
            return step
    return None


Held = Mapping[str, object]
Group = tuple[str, Held, Held]


def _groups_of_steps(a: Journal, b: Journal) -> Iterator[tuple[int, list[Group]]]:
    digests = common_digests(a, b)
    waiting = next(digests, None)
    for ours, theirs in common_steps(a, b):
        groups = list(_of_records(ours, theirs))
        while waiting is not None and waiting[0] < ours.step:
            waiting = next(digests, None)
        if waiting is not None and waiting[0] == ours.step:
            groups += _of_digests(waiting[1], waiting[2])
        yield ours.step, groups


def _initial(journal: Journal) -> dict[str, Digest | None]:
    return {name: one.digest for name, one in journal.initial().items()}


def _of_records(a: StepRecord, b: StepRecord) -> Iterator[Group]:
    names = [name for name in a.generators if name in b.generators]
    yield (
        "generator",
        {name: a.generators[name] for name in names},
        {name: b.generators[name] for name in names},
    )
    if a.batches and b.batches:
        known = [_known_batches(one, other) for one, other in ((a, b), (b, a))]
        yield "batch", known[0], known[1]
    yield "loss", _losses(a), _losses(b)


def _known_batches(record: StepRecord, other: StepRecord) -> Held:
    """Every argument by its place, without those whose value one of the two runs did not read."""
    there = {
        f"argument {place} of call {call}": argument
        for call, arguments in enumerate(record.batches)
        for place, argument in enumerate(arguments)
    }
    unread = {
        f"argument {place} of call {call}"
        for batches in (record.batches, other.batches)
        for call, arguments in enumerate(batches)
        for place, (_, _, found) in enumerate(arguments)
        if not found
    }
    return {name: argument for name, argument in there.items() if name not in unread}


def _losses(record: StepRecord) -> Held:
    return {
        f"loss {index}": b"nan" if math.isnan(value) else struct.pack("<d", value)
        for index, value in enumerate(record.losses)
    }


def _of_digests(a: StepDigests, b: StepDigests) -> Iterator[Group]:
    yield "gradient", *_readable(a.gradients, b.gradients)
    yield "value", *_readable(a.values, b.values)


def _readable(
    a: Mapping[str, Digest | None], b: Mapping[str, Digest | None]
) -> tuple[dict[str, object], dict[str, object]]:
    """The bits of the tensors that both runs have and could read; a gradient may be absent, which is
    readable."""
    names = [name for name in a if name in b and all(one is None or one.readable for one in (a[name], b[name]))]
    return {name: bits(a[name]) for name in names}, {name: bits(b[name]) for name in names}


def _first(a: Held, b: Held) -> str | None:
    """The first name, in a's order, of which the two sides hold different things or one holds nothing."""
    missing = object()
    return next((name for name in [*a, *b] if a.get(name, missing) != b.get(name, missing)), None)


# Where the random generators of two runs are at other states, and whether that can matter.
#
# A journal holds a digest of each generator's state at the beginning of every step. A generator whose state
# changes between two steps was drawn from. One that differs and that neither run draws from afterwards
# changes nothing: a compiler may have drawn from it while it was at work.


@dataclass(frozen=True, slots=True)
class GeneratorDifference:
    """`generator` (torch, python, numpy or a device) is at another state before `step` for the first time.

    `drawn` is the step in which the runs drew different numbers from it; None when it began otherwise. `used`
    says whether the difference can have changed something: both runs drew in that step, or the reference
    alone, or one of them draws later on.
    """

    step: int
    generator: str
    drawn: int | None
    used: bool


def generator_differences(a: RecordedRun, b: RecordedRun) -> list[GeneratorDifference]:
    """The first difference of each generator, in the order of steps."""
    records = common_steps(a.journal, b.journal)
    names = dict.fromkeys(name for ours, theirs in records for name in ours.generators if name in theirs.generators)
    found = [one for name in names if (one := _first_difference(name, records)) is not None]
    return sorted(found, key=lambda one: one.step)


def _first_difference(name: str, records: list[tuple[StepRecord, StepRecord]]) -> GeneratorDifference | None:
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
