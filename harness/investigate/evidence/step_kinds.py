"""The kinds of a training's steps: groups of steps that may go wrong although all other steps are right.

    optimizer   the optimizer that ends the step, if several take turns
    batch       the shapes of the arguments of the step's first model call
    calls       the number of the step's model calls: an evaluation before a step adds some
    schedule    the phase of each hyper-parameter that changes: it rises, it falls, or it keeps a value
    groups      the parameters that the optimizers update
    gradients   the parameters that have a gradient: some may be frozen
    graph       steps like one in which a mode compiles a graph, from that step on
    jump        a step in which the runs, each trained from its own state, suddenly diverge

A step belongs to one kind of each aspect. Aspects with a single kind are left out.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...drift.recorded_drift import common_digests, common_steps
from ...records.results.findings import JUMP, StepKind
from ...runs.journal import Journal, StepRecord
from ...runs.recorded_run import RecordedRun
from .schedule_phases import group_phases, schedule_phases

SUDDEN = 8.0
"""Runs diverge suddenly in a step if their drift exceeds that of each of the BEFORE previous steps by this factor."""

BEFORE = 8

MOST_JUMPS = 4

MOST_COUNTS = 4
"""The largest number of different numbers of model calls that are kinds of their own; more are grouped by size."""


@dataclass(frozen=True, slots=True)
class KindOfSteps:
    """A kind: its aspect, its steps in words (`a batch of 16x8`), and their numbers, in order."""

    aspect: str
    text: str
    steps: tuple[int, ...]

    def compared(self, steps: Collection[int]) -> StepKind:
        """Return the kind with the number of its steps that are among these, which were compared."""
        count = sum(step in steps for step in self.steps)
        return StepKind(self.aspect, self.text, steps=len(self.steps), first=self.steps[0], compared=count)


def step_kinds(a: RecordedRun, b: RecordedRun) -> tuple[KindOfSteps, ...]:
    """Return the kinds of the steps that both runs have, those with the fewest steps first.

    The result is cached until one of the runs has more steps. Raises JournalError for damaged digests.
    """
    return _kinds(_Pair(a.path, b.path, len(a.journal.steps), len(b.journal.steps), (a, b)))


@dataclass(frozen=True, slots=True)
class _Pair:
    """The runs of a pair, as a cache key."""

    a: Path
    b: Path
    steps_of_a: int
    steps_of_b: int
    runs: tuple[RecordedRun, RecordedRun] = field(compare=False)


@functools.lru_cache(maxsize=64)
def _kinds(pair: _Pair) -> tuple[KindOfSteps, ...]:
    a, b = pair.runs
    records = [record for record, _ in common_steps(a.journal, b.journal)]
    steps = [record.step for record in records]
    aspects: dict[str, Mapping[int, str]] = {
        "optimizer": {
            record.step: f"of optimizer {record.optimizer + 1}" for record in records if record.optimizer is not None
        },
        "batch": {record.step: _shapes(record) for record in records},
        "calls": _calls(records),
        "schedule": schedule_phases(a.journal.hyper(), steps),
        "groups": group_phases(a.journal.hyper(), steps),
        "gradients": _with_gradients(a.journal),
    }
    kinds = [kind for aspect, texts in aspects.items() for kind in _of_aspect(aspect, texts, steps)]
    kinds += [KindOfSteps(JUMP, f"step {step}, where the runs suddenly diverge", (step,)) for step in jumps(a, b)]
    kinds += [kind for run in (a, b) for kind in _graphs(run, records)]
    return tuple(sorted(kinds, key=lambda kind: len(kind.steps)))


def _of_aspect(aspect: str, texts: Mapping[int, str], steps: Sequence[int]) -> Iterator[KindOfSteps]:
    steps_of: dict[str, list[int]] = {}
    for step in steps:
        if step in texts:
            steps_of.setdefault(texts[step], []).append(step)
    if len(steps_of) > 1:
        yield from (KindOfSteps(aspect, text, tuple(of_kind)) for text, of_kind in steps_of.items())


def _shapes(record: StepRecord) -> str:
    batch = record.batches[0] if record.batches else ()
    shapes = ["x".join(map(str, shape)) or "a number" for _, shape, _ in batch]
    dtypes = list(dict.fromkeys(dtype for dtype, _, _ in batch))
    return f"with a batch of {', '.join(shapes)} ({', '.join(dtypes)})" if batch else "without a batch"


def _calls(records: Sequence[StepRecord]) -> dict[int, str]:
    counts = {record.step: len(record.batches) for record in records}
    if len({*counts.values()}) <= MOST_COUNTS:
        return {step: f"with {count} model call{'' if count == 1 else 's'}" for step, count in counts.items()}
    powers = {step: 1 << max(0, count.bit_length() - 1) for step, count in counts.items()}
    return {step: f"with {power} to {2 * power - 1} model calls" for step, power in powers.items()}


def _with_gradients(journal: Journal) -> dict[int, str]:
    texts, numbers = dict[int, str](), dict[frozenset[str], int]()
    for step, digests in journal.digests():
        having = frozenset(name for name, digest in digests.gradients.items() if digest is not None)
        number = numbers.setdefault(having, len(numbers) + 1)
        texts[step] = f"with gradients of {len(having)} of {len(digests.gradients)} parameters (set {number})"
    return texts


def _graphs(run: RecordedRun, records: Sequence[StepRecord]) -> Iterator[KindOfSteps]:
    """Yield a kind for each step after the first in which the run compiles a graph.

    The journal does not record which graph a step executes. A later step with the same shapes and the same number of
    model calls counts as a step of the same graph.
    """
    looks: dict[int, Hashable] = {record.step: (_shapes(record), len(record.batches)) for record in records}
    first = records[0].step if records else 0
    for compiled in run.journal.compiled_steps():
        if compiled in looks and compiled > first:
            alike = (step for step, look in looks.items() if step >= compiled and look == looks[compiled])
            yield KindOfSteps("graph", f"like step {compiled}, where {run.manifest.label} compiles", tuple(alike))


def jumps(a: RecordedRun, b: RecordedRun) -> list[int]:
    """Return the first steps in which the gradients of two runs diverge suddenly, at most MOST_JUMPS."""
    drifts: list[tuple[int, float]] = []
    for step, reference_digest, digest in common_digests(a.journal, b.journal):
        apart = 0.0
        for name, left in reference_digest.gradients.items():
            right = digest.gradients.get(name)
            if left is not None and right is not None and left.l2 and math.isfinite(left.l2 + right.l2):
                apart = max(apart, abs(left.l2 - right.l2) / left.l2)
        drifts.append((step, apart))
    found = []
    for place in range(1, len(drifts)):
        before = max(apart for _, apart in drifts[max(0, place - BEFORE) : place])
        step, apart = drifts[place]
        if 0 < before < apart / SUDDEN:
            found.append(step)
    return found[:MOST_JUMPS]


def one_of_each(
    kinds: Sequence[KindOfSteps], able: Collection[int], chosen: Collection[int], most: int
) -> tuple[int, ...]:
    """Choose at most `most` of the `able` steps, one of each kind, in addition to the steps already `chosen`.

    The steps between the chosen ones are the control. So a step that is no neighbour of a chosen one is preferred. A
    kind that has no such step has a neighbour only if no other step of it is chosen, and if few kinds are like that.
    """
    found: list[int] = []
    for kind in kinds:
        near = {step + shift for step in (*chosen, *found) for shift in (-1, 0, 1)}
        apart = next((step for step in kind.steps if step in able and step not in near), None)
        if apart is not None and len(found) < most and not {*found}.intersection(kind.steps):
            found.append(apart)
    left = [kind for kind in kinds if not {*chosen, *found}.intersection(kind.steps)]
    if len(left) <= most - len(found):
        for kind in left:
            possible = [step for step in kind.steps if step in able]
            found += [] if {*found}.intersection(kind.steps) else possible[:1]
    return tuple(found)


def compared_kinds(kinds: Sequence[KindOfSteps], scored: Collection[int], first: int | None) -> tuple[StepKind, ...]:
    """Return the kinds with the numbers of their compared steps: those with a score, and all before step `first`.

    Before the `first` differing step, both runs have computed the same bits from the same states.
    """
    counted = Counter(step for kind in kinds for step in kind.steps)
    compared = {step for step in counted if step in scored or (first is not None and step < first)}
    return tuple(kind.compared(compared) for kind in kinds)
