"""A bit-for-bit comparison of two runs: their records, in the order of computation, and their random generators."""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from ..records.values.digest_record import Digest
from ..runs.journal import Journal, StepRecord
from ..runs.recorded_run import RecordedRun
from ..runs.step_digests import StepDigests, have_equal_bits

INPUTS = ("initial", "generator", "batch")
"""Kinds of differences in the inputs of the steps, as opposed to their results."""


@dataclass(frozen=True, slots=True)
class RecordedDifference:
    """The first difference of its kind: `what` is initial, generator, batch, loss, gradient, value or steps."""

    step: int
    what: str
    name: str


def common_digests(a: Journal, b: Journal) -> Iterator[tuple[int, StepDigests, StepDigests]]:
    """Yield the digests of each step for which both runs have them, in order."""
    others = b.digests()
    waiting = next(others, None)
    for step, digests in a.digests():
        while waiting is not None and waiting[0] < step:
            waiting = next(others, None)
        if waiting is None:
            return
        if waiting[0] == step:
            yield step, digests, waiting[1]


def common_steps(a: Journal, b: Journal) -> list[tuple[StepRecord, StepRecord]]:
    """Return the records of each step that both runs have, in order."""
    others = {record.step: record for record in b.steps}
    return [(record, others[record.step]) for record in a.steps if record.step in others]


def common_records(
    a: Journal, b: Journal
) -> Iterator[tuple[StepRecord, StepRecord, tuple[StepDigests, StepDigests] | None]]:
    """Yield the records of each step that both runs have, and the step's digests if both runs have digests of it."""
    digests = common_digests(a, b)
    waiting = next(digests, None)
    for record_a, record_b in common_steps(a, b):
        while waiting is not None and waiting[0] < record_a.step:
            waiting = next(digests, None)
        yield record_a, record_b, waiting[1:] if waiting is not None and waiting[0] == record_a.step else None


def bits(digest: Digest | None) -> tuple[int, int] | None:
    """Return the part of a digest that decides equality.

    The digest's statistics are left out: those of equal tensors may be NaN, which equals nothing.
    """
    return None if digest is None else (digest.hash, digest.numel)


def differing_tensors(a: StepDigests, b: StepDigests) -> Iterator[tuple[str, str]]:
    """Yield the kind ("gradient" or "value") and the name of each tensor of a step whose bits differ.

    Gradients come first, since they are computed before the values that they change.
    """
    for what, left, right in (("gradient", a.gradients, b.gradients), ("value", a.values, b.values)):
        for name in () if have_equal_bits(left, right) else left:
            if name in right and bits(left[name]) != bits(right[name]):
                yield what, name


def cut_short(a: RecordedRun, b: RecordedRun) -> RecordedRun | None:
    """Return the run that has fewer steps than the other because a limit in seconds ended it.

    Such runs are compared on their common steps. Return None if both have equally many steps, or if their lengths
    differ for another reason.
    """
    short, long = sorted((a, b), key=lambda run: len(run.journal.steps))
    # An experiment is limited to the number of steps of the run that it repeats, because a limit in seconds would end
    # the experiment at a different step.
    by = "max_steps" if short.manifest.experiment else "max_seconds"
    ended = by in short.journal.limits and len(short.journal.steps) < len(long.journal.steps)
    return short if ended else None


def own_steps(run: RecordedRun) -> set[int]:
    """Return the steps that a run began in its own state.

    After the events resynced 2, rejoined 3 and resynced 5, step 2 and all steps from 5 on began in another run's state.
    """
    changes = {int(event["step"]): False for event in run.journal.events("resynced") if not event.get("equal")}
    changes |= {int(event["step"]): True for event in run.journal.events("rejoined")}
    own, steps = True, set()
    for record in run.journal.steps:
        own = changes.get(record.step, own)
        if own:
            steps.add(record.step)
    return steps


def differences(a: RecordedRun, b: RecordedRun) -> Iterator[RecordedDifference]:
    """Yield the first difference of the initial values, then those of every step, then missing steps.

    A step has at most one difference of each kind (generators, batches, losses, gradients, values): the first. Steps
    that b began in another run's state are left out, as is anything that one run did not record or a damaged journal
    lacks.
    """
    if (name := _first(*_readable(_initial(a.journal), _initial(b.journal)))) is not None:
        yield RecordedDifference(0, "initial", name)
    own = own_steps(b)
    for step, groups in _groups_of_steps(a.journal, b.journal):
        for what, left, right in groups if step in own else ():
            if (name := _first(left, right)) is not None:
                yield RecordedDifference(step, what, name)
    counts = [len(run.journal.steps) for run in (a, b)]
    if counts[0] != counts[1] and not (a.journal.damage or b.journal.damage or cut_short(a, b)):
        yield RecordedDifference(min(counts), "steps", f"{counts[0]} against {counts[1]} steps")


def first_computed_difference(a: RecordedRun, b: RecordedRun) -> int | None:
    """Return the first step in which computed values differ. Differences in the inputs of steps do not count."""
    for step, groups in _groups_of_steps(a.journal, b.journal):
        if any(what not in INPUTS and _first(left, right) is not None for what, left, right in groups):
            return step
    return None


Held = Mapping[str, object]
Group = tuple[str, Held, Held]


def _groups_of_steps(a: Journal, b: Journal) -> Iterator[tuple[int, list[Group]]]:
    """Yield the records that both runs have of each step, in the order in which a step computes them."""
    for record_a, record_b, digests in common_records(a, b):
        names = [name for name in record_a.generators if name in record_b.generators]
        states: list[Held] = [{name: record.generators[name] for name in names} for record in (record_a, record_b)]
        groups: list[Group] = [("generator", states[0], states[1])]
        if record_a.batches and record_b.batches:
            # The arguments by place, without any whose value one of the two runs did not read
            arguments_of = [
                {
                    f"argument {place} of call {call}": argument
                    for call, arguments in enumerate(record.batches)
                    for place, argument in enumerate(arguments)
                }
                for record in (record_a, record_b)
            ]
            unread = {name for side in arguments_of for name, (_, _, digest) in side.items() if not digest}
            read = [{name: argument for name, argument in side.items() if name not in unread} for side in arguments_of]
            groups.append(("batch", read[0], read[1]))
        groups.append(("loss", _losses(record_a), _losses(record_b)))
        if digests is not None:
            kinds = (
                ("gradient", digests[0].gradients, digests[1].gradients),
                ("value", digests[0].values, digests[1].values),
            )
            groups += [(what, *_readable(*sides)) for what, *sides in kinds if not have_equal_bits(*sides)]
        yield record_a.step, groups


def _initial(journal: Journal) -> dict[str, Digest | None]:
    return {name: tensor.digest for name, tensor in journal.initial().items()}


def _losses(record: StepRecord) -> Held:
    # Compared by their bits, except that all NaNs are equal
    return {
        f"loss {index}": b"nan" if math.isnan(value) else struct.pack("<d", value)
        for index, value in enumerate(record.losses)
    }


def _readable(
    a: Mapping[str, Digest | None], b: Mapping[str, Digest | None]
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the bits of the tensors that both runs have and could read. An absent gradient counts as read."""
    names = [
        name for name in a if name in b and all(digest is None or digest.readable for digest in (a[name], b[name]))
    ]
    return {name: bits(a[name]) for name in names}, {name: bits(b[name]) for name in names}


def _first(a: Held, b: Held) -> str | None:
    """Return the first name, in a's order, whose contents differ or that one side lacks."""
    missing = object()
    return next((name for name in [*a, *b] if a.get(name, missing) != b.get(name, missing)), None)


# The differences between the generators' states in two runs, and whether they can matter.

GENERATORS = {
    "torch": ("torch's generator", "torch.manual_seed(0)"),
    "python": ("Python's generator", "random.seed(0)"),
    "numpy": ("NumPy's generator", "numpy.random.seed(0)"),
}
"""The name of each generator in sentences, and the call that seeds it."""


@dataclass(frozen=True, slots=True)
class GeneratorDifference:
    """A difference between the states of a `generator` (torch, python, numpy or a device).

    step: the first step that begins with different states
    drawn: the step in which the runs drew differently from the generator; None if they began with different states
    used: whether the difference may have changed a value: the reference drew in step `drawn`, or one of the runs draws
        later
    """

    step: int
    generator: str
    drawn: int | None
    used: bool


def generator_differences(
    a: RecordedRun, b: RecordedRun, steps: Container[int] | None = None
) -> list[GeneratorDifference]:
    """Return the first difference of each generator in these steps, sorted by step."""
    records = [pair for pair in common_steps(a.journal, b.journal) if steps is None or pair[0].step in steps]
    names = dict.fromkeys(
        name for record_a, record_b in records for name in record_a.generators if name in record_b.generators
    )
    generator_changes = []
    for name in names:
        states_of_a = [record.generators.get(name) for record, _ in records]
        states_of_b = [record.generators.get(name) for _, record in records]
        unequal = (
            place
            for place, (left, right) in enumerate(zip(states_of_a, states_of_b, strict=True))
            if left is not None and right is not None and left != right
        )
        first = next(unequal, None)
        if first is None:
            continue
        drawn = records[first - 1][0].step if first else None
        # If the reference drew in step `drawn`, the other run drew that number elsewhere or not at all.
        later = ({state for state in states[first:] if state is not None} for states in (states_of_a, states_of_b))
        used = (first > 0 and states_of_a[first - 1] != states_of_a[first]) or any(len(states) > 1 for states in later)
        generator_changes.append(GeneratorDifference(records[first][0].step, name, drawn, used))
    return sorted(generator_changes, key=lambda change: change.step)
