"""The choice of steps: those that the other mode starts from the reference's state, and those that are recorded as
tapes.

The choice depends on the runs without resynced steps: the step in which a pair first differs, the step in which it
diverges suddenly, and the steps with a kept state.
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ...drift.recorded_drift import common_steps, first_computed_difference
from ...drift.run_comparison import RunComparison
from ...drift.setup.step_setup import compared_arguments
from ...drift.wholes import entries_of
from ...errors import UsageError
from ...records.run.run_request import NOISE_REPLAYS
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import state_steps
from ...search import evenly
from ..evidence.pair_scores import spec_of
from ..evidence.step_kinds import jumps, one_of_each, step_kinds
from .investigation_plan import InvestigationRequest
from .laboratory import Progress

MOST_FORCED = 64
"""The largest number of steps started from the reference's state: enough to see a fault that begins late."""

MOST_TAPES = 4
"""The largest number of steps whose noise is measured."""

REPLAY_FACTOR, TAPE_SECONDS = 3.0, 20.0
"""The time of a replay with random rounding, as a multiple of the time of a step (1.6 for a ResNet-18, 4 for a step of
many small calls, on two cores of a CPU), and the time in seconds that the replays of a short training run may take. In
a longer run, they may take as long as the run."""

STATE_SHARE = 9
"""The bytes of a step's state and outcome, as a multiple of the bytes of its parameters and buffers. The state takes 3
of the 9 (parameters and Adam's two moments), the gradients that are left over take 1, and the outcome takes 5."""

MOST_KINDS = 8
"""The largest number of steps that are chosen because they are of a kind that has no chosen step yet."""


def most_forced(bytes_a_step: int, budget: int) -> int:
    """Return the number of steps that may start from the reference's state within a budget in bytes; at least two."""
    return max(2, min(MOST_FORCED, budget // max(1, bytes_a_step)))


def forced_steps(
    count: int,
    first_differing: Iterable[int],
    bytes_a_step: int,
    budget: int,
    shorter: Iterable[int] = (),
    of_kinds: Iterable[int] = (),
) -> tuple[int, ...]:
    """Return the steps of a run of `count` steps that start from the reference's state.

    These are the first steps, the steps in which pairs first differ, the last step, the steps `of_kinds` that no other
    step represents, and evenly spaced steps. Their number is limited by MOST_FORCED and by the `budget` in bytes, but
    is at least two. Pairs with fewer common steps add the last step of each of the `shorter` counts, and evenly spaced
    steps before it.
    """
    counts = sorted({*shorter, count})
    most = most_forced(bytes_a_step, budget)
    if count <= most:
        return tuple(range(count))
    # The steps are in order of importance, since a small budget cuts the list short.
    wanted = [0, *sorted(set(first_differing)), 1, *(length - 1 for length in reversed(counts)), *of_kinds]
    chosen = list(dict.fromkeys(step for step in wanted if 0 <= step < count))[:most]
    shares = (step for length in counts for step in evenly(length, most // len(counts)))
    others = [step for step in dict.fromkeys(shares) if step not in chosen]
    return tuple(sorted([*chosen, *others[: most - len(chosen)]]))


def taped_steps(forced: Sequence[int], first_differing: Iterable[int], most: int = MOST_TAPES) -> tuple[int, ...]:
    """Return at most `most` of the resynced steps that are recorded as tapes: those in which a pair first differs, the
    first, the last and the middle one."""
    wanted = [*sorted(set(first_differing)), forced[0], forced[-1], forced[len(forced) // 2]]
    return tuple(sorted([*dict.fromkeys(step for step in wanted if step in forced)][:most]))


def most_tapes(run: RecordedRun) -> int:
    """Return the number of steps whose noise can be measured in a time that is in proportion to the run's."""
    ends = [record.seconds for record in run.journal.steps]
    if len(ends) < 2:
        return MOST_TAPES
    step = statistics.median(end - begin for begin, end in pairwise(ends))
    each = NOISE_REPLAYS * REPLAY_FACTOR * step
    return MOST_TAPES if each <= 0 else max(1, min(MOST_TAPES, int(max(TAPE_SECONDS, ends[-1]) / each)))


def bytes_of_state(run: RecordedRun) -> int:
    """Return the number of bytes of a state's parameters and buffers."""
    # float32 and dtypes that are not listed take 4 bytes.
    sizes = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "bfloat16": 2, "float16": 2, "bool": 1}
    return sum(math.prod(entry.shape) * sizes.get(entry.dtype, 4) for entry in entries_of(run).values())


@dataclass(frozen=True, slots=True)
class ChosenSteps:
    """The chosen steps of one investigation.

    forced: the steps that start from the reference's state
    taped: the steps whose noise is measured
    recorded: the steps that the reference has a tape of
    held: the steps that each mode other than the reference has a tape of
    of: the runs that need to be trained only once more, by path, each with the steps that the new run begins in the
        reference's state. The other steps of the new run are the control. A run that is not listed is trained twice
        more: once for all `forced` steps, and once as its control.
    """

    forced: tuple[int, ...]
    taped: tuple[int, ...]
    recorded: tuple[int, ...]
    held: tuple[int, ...]
    of: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)


def choose(
    reference: RecordedRun,
    others: Sequence[RecordedRun],
    compared: Sequence[RunComparison],
    plan: InvestigationRequest,
    progress: Progress,
) -> ChosenSteps:
    """Choose the steps, and report the disk space that their states take."""
    counts = {
        pair_comparison.common_steps if pair_comparison.cut_short else len(reference.journal.steps)
        for pair_comparison in compared
    }
    count = max(counts)
    firsts = sorted(
        {first for pair_comparison in compared if (first := pair_comparison.first_differing_step) is not None}
    )
    size = bytes_of_state(reference) * STATE_SHARE
    free = shutil.disk_usage(reference.path).free
    budget = min(plan.state_budget, free // 4)
    if plan.steps is not None:
        steps = tuple(step for step in range(count) if step in plan.steps)
    else:
        of_kinds = [
            step
            for run in others
            for step in one_of_each(step_kinds(reference, run), range(count), {0, 1, count - 1, *firsts}, MOST_KINDS)
        ]
        steps = forced_steps(count, firsts, size, budget, counts, of_kinds)
    if not steps:
        raise UsageError(f"--steps {plan.steps} selects no step of this training run, which has steps 0 to {count - 1}")
    sudden = {run.path: sudden_step(reference, run) for run in others}
    of: dict[Path, tuple[int, ...]] = {}
    if plan.steps is None:
        for run, comparison in zip(others, compared, strict=True):
            first, most = comparison.first_differing_step, most_forced(size, budget)
            within = within_control(reference, run, first, sudden[run.path], most)
            if within:
                of[run.path] = within
    if of and all(
        run.path in of or pair_comparison.identical for run, pair_comparison in zip(others, compared, strict=True)
    ):
        steps = tuple(sorted({step for within in of.values() for step in within}))
    progress.say(
        f"{len(steps)} of {count} steps are started from the state of {reference.manifest.label}; their states take "
        f"about {max(0.1, len(steps) * size / 2**20):,.1f} MiB per mode in {reference.path.parent}"
    )
    apart = [step for step in sudden.values() if step is not None]
    facts = spec_of(reference).capabilities
    eager = facts.has_values and not facts.compiles
    taped = taped_steps(steps, [*firsts, *apart], most_tapes(reference))
    # A tape takes about half as much space as its step's state and outcome. A reference that compiles reads values
    # slowly, and lazy tensors have none: these two kinds of reference record only the `taped` steps.
    recorded = steps if eager and 2 * len(steps) * size <= budget else taped
    # The first significant step is examined. Usually it is the first step, or one in which a pair first differs or
    # suddenly diverges. If all drift is rounding, the last step is examined.
    held = tuple(step for step in taped if step in (steps[0], *firsts, *apart, steps[-1]))
    return ChosenSteps(steps, taped, recorded, held, of)


def within_control(
    reference: RecordedRun, run: RecordedRun, first: int | None, sudden: int | None, most: int
) -> tuple[int, ...]:
    """Return the steps that a repetition of the run may begin in the reference's state, and still repeat the run in all
    other steps; an empty tuple if that is not possible.

    The pair differs from step `first` on, and diverges suddenly in step `sudden`.

    The reference has kept its state of each of these steps. The run has kept its own state of the next step, from which
    the repetition continues. Step `first` needs no kept state: both runs begin it in the same state anyway. No two of
    the steps are neighbours, except those at which the pair diverges. If batches differ only after the runs do, no step
    is possible: input that the script computes itself (such as a recurrent state or a prediction) is not part of a
    state.
    """
    if first is None or late_arguments(reference, run):
        return ()
    count = min(len(compared_run.journal.steps) for compared_run in (reference, run))
    begun, own = set(state_steps(reference.path)), set(state_steps(run.path))
    able = [step for step in range(first + 1, count) if step in begun and (step + 1 in own or step == count - 1)]
    if first not in begun and not able:
        return ()
    # If the runs differ in length, the last common step shows whether a computed value decides the length.
    last = count - 1 if len(reference.journal.steps) != len(run.journal.steps) else None
    wanted = {step for step in (sudden, None if sudden is None else sudden - 1, last) if step in able}
    chosen = {first, *wanted}
    # The rarest kinds come first: they have the fewest steps that are no neighbours of chosen ones.
    of_kinds = one_of_each(step_kinds(reference, run), able, chosen, MOST_KINDS)
    wanted |= {*of_kinds}
    chosen |= {*of_kinds}
    for step in able:
        if not chosen & {step - 1, step, step + 1}:
            chosen.add(step)
    rest = sorted(chosen - {first, *wanted})
    kept = [rest[place] for place in evenly(len(rest), min(len(rest), max(0, most - 1 - len(wanted))))]
    return tuple(sorted({first, *wanted, *kept}))


def late_arguments(a: RecordedRun, b: RecordedRun) -> bool:
    """Check whether the arguments of the models differ in a step after the first computed difference."""
    since = first_computed_difference(a, b)
    if since is None:
        return False
    return any(
        not equal
        for reference_record, record in common_steps(a.journal, b.journal)
        if reference_record.step > since
        for _, _, equal in compared_arguments(reference_record, record)
    )


def sudden_step(a: RecordedRun, b: RecordedRun) -> int | None:
    """Return the first step in which the gradients of two runs diverge suddenly; None if they diverge gradually."""
    return next(iter(jumps(a, b)), None)
