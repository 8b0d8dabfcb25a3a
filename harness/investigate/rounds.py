"""The experiments that a verdict needs, round by round, and which steps of a training they look at.

controls     each mode once more; the reference keeps states, outcomes and tapes of chosen steps
forced       these steps of the other modes, each begun in the reference's state
suspicious   tapes of the steps that drift, with stronger rounding
onset        further steps, between the last within rounding and the first beyond
envelope, seeds     whole trainings
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..drift.recorded_drift import repetition
from ..drift.run_comparison import RunComparison
from ..drift.step_noise import read_noise
from ..drift.step_score import StepScore
from ..drift.verdict import worst_of
from ..drift.wholes import entries_of
from ..errors import UsageError
from ..records.experiment import Experiment
from ..records.step_files import steps_in
from ..records.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import STATES
from ..search import between, evenly
from .evidence import EvidenceFolder, evidence_for
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Progress, Round, begun_in, repeating
from .pair_scores import scores_of, suspicious_steps

MOST_FORCED = 64
"""Steps that are started from the reference's state: enough to see a fault that begins late."""

MOST_TAPES = 4
"""Steps recorded as tapes: a tape with its replays costs about as much as 60 steps."""

STATE_SHARE = 9
"""State and outcome of a step over the bytes of its parameters and buffers: three times them for the state
(parameters and Adam's two moments), once for the gradients left over, five times for the outcome."""


RERUNS = 4
"""Perturbed re-runs that stand in for the tape where no step replays."""

MOST_CONFIRMED = 8
"""Suspicious steps that are looked at closer."""

ALWAYS_CONFIRMED = 2
"""So few are looked at in any case. Where there are more, and they are most of the steps, no kink explains them."""

EDGE_REPLAYS = 16
"""Replays with stronger rounding of such a step."""

MOST_ONSET_ROUNDS = 3
"""Rounds of 64 further steps each, between the last step within rounding and the first beyond: 262,144 steps
in three."""

FROM_THE_STATE = "from the reference's state"


def forced_steps(
    count: int, first_differing: Iterable[int], bytes_a_step: int, budget: int, shorter: Iterable[int] = ()
) -> tuple[int, ...]:
    """The steps of a training of `count` steps to start from the reference's state.

    The first ones, where pairs first differed, the last, and the rest evenly spaced, as many as
    MOST_FORCED and the `budget` in bytes allow; at least two. Of pairs that have fewer steps in common, the `shorter`
    counts, the last, and as many evenly spaced ones.
    """
    counts = sorted({*shorter, count})
    most = max(2, min(MOST_FORCED, budget // max(1, bytes_a_step)))
    if count <= most:
        return tuple(range(count))
    # In the order in which they matter, since a small budget cuts the list off
    wanted = [0, *sorted(set(first_differing)), 1, *(one - 1 for one in reversed(counts))]
    chosen = list(dict.fromkeys(step for step in wanted if 0 <= step < count))[:most]
    shares = (step for one in counts for step in evenly(one, most // len(counts)))
    others = [step for step in dict.fromkeys(shares) if step not in chosen]
    return tuple(sorted([*chosen, *others[: most - len(chosen)]]))


def taped_steps(forced: Sequence[int], first_differing: Iterable[int]) -> tuple[int, ...]:
    """The forced steps that are recorded as tapes: the first, where a pair first differed, the middle, the last."""
    wanted = [forced[0], *sorted(set(first_differing)), forced[len(forced) // 2], forced[-1]]
    return tuple(sorted(dict.fromkeys(step for step in wanted if step in forced)))[:MOST_TAPES]


def steps_between(steps: Sequence[StepScore], threshold: float, most: int) -> list[int]:
    """At most so many steps between the first one beyond the threshold and the scored one before it."""
    return between(((one.step, worst_of([one]) > threshold) for one in steps), most)


def bytes_of_state(run: RecordedRun) -> int:
    """What a state's parameters and buffers take."""
    # float32 and whatever is not listed take 4
    sizes = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "bfloat16": 2, "float16": 2, "bool": 1}
    return sum(math.prod(entry.shape) * sizes.get(entry.dtype, 4) for entry in entries_of(run).values())


@dataclass(frozen=True, slots=True)
class ChosenSteps:
    """The steps of one investigation: `forced` start from the reference's state, `taped` are recorded as tapes."""

    forced: tuple[int, ...]
    taped: tuple[int, ...]


def choose(
    reference: RecordedRun, compared: Sequence[RunComparison], plan: InvestigationPlan, progress: Progress
) -> ChosenSteps:
    """Choose the steps, and say what their states take on the disk."""
    counts = {one.common_steps if one.cut_short else len(reference.journal.steps) for one in compared}
    count = max(counts)
    firsts = sorted({first for one in compared if (first := one.first_differing_step) is not None})
    size = bytes_of_state(reference) * STATE_SHARE
    if plan.steps is not None:
        steps = tuple(step for step in range(count) if step in plan.steps)
    else:
        free = shutil.disk_usage(reference.path).free
        steps = forced_steps(count, firsts, size, min(plan.state_budget, free // 4), counts)
    if not steps:
        raise UsageError(f"--steps {plan.steps} names no step of this training, which has the steps 0 to {count - 1}")
    progress.say(
        f"{len(steps)} of {count} steps are started from the state of {reference.manifest.label}; their states take "
        f"about {max(0.1, len(steps) * size / 2**20):,.1f} MiB a mode in {EvidenceFolder.of(reference).path}"
    )
    return ChosenSteps(steps, taped_steps(steps, firsts))


def controls(reference: RecordedRun, others: Sequence[RecordedRun], chosen: ChosenSteps) -> Round:
    """Each mode against itself; the reference keeps states, outcomes and tapes while it is at it."""
    steps, first = StepSelection.of(chosen.forced), StepSelection.of(chosen.forced[:1])
    plans = [
        repeating(reference, _again(reference), states=steps, outcomes=steps, tapes=StepSelection.of(chosen.taped))
    ]
    plans += [repeating(run, _again(run), states=first) for run in others]
    return Round("controls", plans)


def is_repeatable(reference: RecordedRun) -> bool:
    repeated = EvidenceFolder.of(reference).find(_again(reference))
    return repeated is not None and repetition(reference, repeated).repeatable


def forced(reference: RecordedRun, others: Sequence[RecordedRun], chosen: ChosenSteps) -> Round:
    """The chosen steps of every mode, each begun in the reference's state: none where it could not be kept."""
    states = _states_of(reference)
    if not steps_in(states):  # the state of a training that torch.func transforms cannot be read
        return Round(FROM_THE_STATE)
    made = [(run, Experiment("forced", run.path.name, reference.path.name)) for run in others]
    return Round(FROM_THE_STATE, [begun_in(states, run, one, chosen.forced) for run, one in made])


def noise_without_tape(reference: RecordedRun, chosen: ChosenSteps, progress: Progress) -> Round:
    """Where no step replays, measure the noise by starting the reference's steps from states that are one ULP off."""
    repeated, states = EvidenceFolder.of(reference).find(_again(reference)), _states_of(reference)
    if repeated is None or not steps_in(states):
        return Round("noise")
    noises = [read_noise(repeated.path, step) for step in chosen.taped]
    if any(noise is not None and noise.equal for noise in noises):
        return Round("noise")
    reasons = {noise.reason for noise in noises if noise is not None and noise.reason}
    progress.say(
        f"no step of {reference.manifest.label} replays ({'; '.join(sorted(reasons)) or 'no tape was written'}): "
        f"its noise is measured by {RERUNS} runs of the script"
    )
    made = [Experiment("ulp", reference.path.name, detail=str(seed)) for seed in range(RERUNS)]
    plans = [begun_in(states, reference, one, chosen.forced, perturb=seed + 1) for seed, one in enumerate(made)]
    return Round("noise", plans)


def date_onset(
    laboratory: Laboratory, reference: RecordedRun, others: Sequence[RecordedRun], plan: InvestigationPlan
) -> None:
    """Start further steps from the reference's state until each pair's first significant step is known.

    A long training has too many states to keep. Between the last step that is within rounding and the first
    that is not, states are kept in further rounds, evenly spaced as before, until the two are neighbours.
    """
    if plan.steps is not None:
        return
    a = reference.path.name
    most = max(2, min(MOST_FORCED, plan.state_budget // max(1, bytes_of_state(reference) * STATE_SHARE)))
    for run in others:
        b = run.path.name
        for number in range(MOST_ONSET_ROUNDS):
            scores = scores_of(evidence_for(reference, run))
            steps = steps_between(scores.steps, scores.threshold.fault, most)
            if not steps:
                break
            # the reference runs again to keep the states of these steps, and the mode begins in them
            ours, theirs = (Experiment("onset", *names, detail=str(number)) for names in ((a, b), (b, a)))
            title = f"where {run.manifest.label} begins to drift, between step {steps[0] - 1} and {steps[-1] + 1}"
            kept = StepSelection.of(steps)
            laboratory.make(Round(title, [repeating(reference, ours, states=kept, outcomes=kept, until=steps[-1])]))
            states = EvidenceFolder.of(reference).path / ours.name / STATES
            if states.is_dir():
                laboratory.make(Round(FROM_THE_STATE, [begun_in(states, run, theirs, steps)]))


def suspicious(reference: RecordedRun, others: Sequence[RecordedRun]) -> Round:
    """Look closer at the suspicious steps: a tape of each, with stronger rounding to find discrete choices."""
    wanted, known = set[int](), set[int]()
    for run in others:
        scores = scores_of(evidence_for(reference, run))
        known |= {one.step for one in scores.steps if one.looked_closer}
        found = suspicious_steps(scores)
        # a kink is rare: where most steps drift it explains none of them, and the tapes would be in vain
        if len(found) <= ALWAYS_CONFIRMED or 2 * len(found) <= len(scores.steps):
            wanted |= {found[place] for place in evenly(len(found), min(len(found), MOST_CONFIRMED))}
    if not wanted:
        return Round("suspicious steps")
    # those of an earlier call among them: its run, which this one replaces, had their tapes
    last, steps = max(wanted | known), StepSelection.of(wanted | known)
    taped = Experiment("taped", reference.path.name, detail="0")
    return Round(
        "suspicious steps",
        [repeating(reference, taped, outcomes=steps, tapes=steps, until=last, edge_replays=EDGE_REPLAYS)],
    )


def envelope(reference: RecordedRun, count: int) -> Round:
    """Train the reference so many times from parameters that are one ULP off."""
    made = [Experiment("perturbed", reference.path.name, detail=str(seed)) for seed in range(count)]
    plans = [repeating(reference, one, perturb=seed + 1, record="losses") for seed, one in enumerate(made)]
    return Round("envelope", plans)


def seeds(runs: Sequence[RecordedRun], count: int) -> Round:
    """Train every mode with so many seeds, that of the runs among them."""
    # the runs themselves are the first seed, so a shift of 0 needs no training
    made = [(run, Experiment("seed", run.path.name, detail=str(n)), n) for n in range(1, count) for run in runs]
    return Round("seeds", [repeating(run, one, seed_shift=n, record="losses") for run, one, n in made])


def _again(run: RecordedRun) -> Experiment:
    return Experiment("again", run.path.name)


def _states_of(reference: RecordedRun) -> Path:
    """The states that its repetition has kept."""
    return EvidenceFolder.of(reference).path / _again(reference).name / STATES
