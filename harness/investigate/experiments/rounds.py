"""The experiments that a verdict needs, round by round.

once_more    each mode trains once more and becomes a worker; the reference keeps outcomes and tapes of chosen
             steps, and the others begin these steps in the reference's state, then continue from their own states
from_itself  the chosen steps of a reference that does not repeat, each begun in its state of the first run
apart        if one run cannot serve both purposes: a control, and a second run for the chosen steps
onset        further steps, between the last step within rounding and the first step beyond it
envelope, seeds     training runs to the end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...drift.recorded_drift import own_steps
from ...drift.repetition import Repetition
from ...drift.step_noise import read_noise
from ...drift.step_score import StepScore
from ...drift.verdict import worst_of
from ...launch.batch_plan import BatchPlan
from ...records.results.experiment import Experiment
from ...records.run.call_subject import TIMES
from ...records.run.run_config import RunConfig
from ...records.run.run_request import NOISE_REPLAYS
from ...records.run.step_files import steps_in
from ...records.run.step_selection import StepSelection
from ...runs.recorded_run import RecordedRun
from ...runs.run_layout import STATES
from ...runs.step_digests import have_equal_bits
from ...runs.step_outcomes import outcome_steps, state_steps, tape_steps
from ...search import between
from ..evidence.ended_by_values import ended_by_values
from ..evidence.kept_repetition import repetition_of
from ..evidence.pair_evidence import EvidenceFolder, evidence_for
from ..evidence.pair_scores import scores_of, spec_of
from .chosen_steps import STATE_SHARE, ChosenSteps, bytes_of_state, most_forced
from .investigation_plan import InvestigationRequest
from .laboratory import Laboratory, Progress, Round, begun_in, repeating
from .tapes_beside import is_measured_beside

RERUNS = 4
"""The number of perturbed runs that measure the noise if no step replays."""

MOST_ONSET_ROUNDS = 3
"""The largest number of rounds, each of 64 further steps, between the last step within rounding and the first beyond
it. Three rounds suffice for 262,144 steps."""

FROM_THE_STATE = "from the reference's state"
OWN_STATES = "from its own states, as the reference does not repeat"

FROM_ITSELF = "from-itself"
"""The kind of the experiment with the steps of a reference that does not repeat."""


def steps_between(steps: Sequence[StepScore], threshold: float, most: int) -> list[int]:
    """Return at most `most` steps between the first step beyond the threshold and the scored step before it."""
    return between(((step_score.step, worst_of([step_score]) > threshold) for step_score in steps), most)


def once_more(reference: RecordedRun, others: Sequence[RecordedRun], chosen: ChosenSteps) -> Round:
    """Train each mode once more as its control.

    In the same run, each mode other than the reference begins the chosen steps in the reference's state:

        step        0      1      2        3      4        5
        reference   own    own    own      own    own      own       keeps outcomes of 0, 2, 4, and tapes
        mode        own    own    resync   own    resync   own       before 3 and 5, its own state is restored

    Modes for which this is not possible are handled by `apart`.
    """
    apart = [run for run in others if run.path not in chosen.of]
    steps, kept = StepSelection.of(chosen.forced), set(state_steps(reference.path))
    lacking = [step for step in chosen.forced if step not in kept]
    plans = [
        repeating(
            reference,
            control_of(reference),
            states=steps if apart else StepSelection.of(lacking) if lacking else None,
            outcomes=steps,
            tapes=StepSelection.of(chosen.recorded),
            measured=StepSelection.of(chosen.taped),
            noise_replays=0 if is_measured_beside(reference) else NOISE_REPLAYS,
            keep_inputs=bool(apart) or any(has_several_calls(run) for run in others),
            held=True,
        )
    ]
    for run in others:
        if run in apart:
            first = StepSelection.of(chosen.forced[:1])
            plans.append(repeating(run, control_of(run), states=first, keep_inputs=has_several_calls(reference)))
            continue
        forced = chosen.of[run.path]
        kept = set(state_steps(run.path))
        lacking = [step for step in forced if step not in kept]
        plan = _forced(reference, run, reference.path / STATES, forced, chosen)
        own = StepSelection.of(lacking) if lacking else None
        plans.append(replace(plan, rejoin=run.path / STATES, states=own, until=None))
    return Round("each mode once more", plans)


def repeats_each_call(run: RecordedRun) -> bool:
    """Check whether a run makes calls instead of training, and each call computed the same bits both times."""
    if RunConfig.load(run.path / "config.json").subject is None:
        return False
    digests = [of_step for _, of_step in run.journal.digests()]
    pairs = list(zip(digests[::TIMES], digests[1::TIMES], strict=False))
    return bool(pairs) and all(have_equal_bits(first.values, again.values) for first, again in pairs)


def has_several_calls(run: RecordedRun) -> bool:
    """Check whether the run calls its model several times in its first step, perhaps with parts of a batch."""
    steps = run.journal.steps
    return bool(steps) and len(steps[0].batches) > 1


def not_of_itself(reference: RecordedRun, others: Sequence[RecordedRun], chosen: ChosenSteps) -> list[RecordedRun]:
    """Return the runs that `once_more` could not repeat in the training run that has the resynced steps.

    Either the script carries something from step to step that no state includes, or the mode does not repeat itself at
    all. A separate control shows which of the two is the reason.
    """
    doubtful = []
    for run in others:
        made = evidence_for(reference, run).forced if run.path in chosen.of else None
        if made is None or made.manifest.status == "running":
            continue
        control = repetition_of(run, made)
        if not (control.repeatable or (control.what == "steps" and ended_by_values(reference, run, made))):
            doubtful.append(run)
    return doubtful


def apart(
    reference: RecordedRun,
    others: Sequence[RecordedRun],
    again: Sequence[RecordedRun],
    chosen: ChosenSteps,
) -> Round:
    """Begin the chosen steps of every mode in the reference's state, in one run that ends after the last of them.

    Values that the script carries from one step to the next stay close to the reference's. If the reference could keep
    no state, there is no such run. Each run in `again` is also trained once more as its control. If it is compiled, its
    steps are begun in the reference's state once more without being observed.
    """
    plans = [repeating(run, control_of(run)) for run in again]
    own = tapes_of(reference).kind == FROM_ITSELF
    for run in others:
        kept = own or run.path in chosen.of
        states = reference.path / STATES if kept else states_of(reference)
        steps = chosen.of.get(run.path, chosen.forced)
        if kept:
            steps = tuple(step for step in steps if step in steps_in(states))
        if steps and steps_in(states):  # if torch.func transforms the training, its state cannot be read
            plans.append(_forced(reference, run, states, steps, chosen, "apart" if run.path in chosen.of else "forced"))
            if run in again and spec_of(run).capabilities.compiles:
                # What is observed is compiled without torch's caches of graphs. They may be why it continues otherwise.
                experiment = Experiment("unobserved", run.path.name, reference.path.name)
                plans.append(begun_in(states, run, experiment, steps))
    return Round(FROM_THE_STATE, plans)


def from_itself(reference: RecordedRun, chosen: ChosenSteps) -> Round:
    """Begin the chosen steps in the states of the reference's first run, and tape them.

    This is for a reference that does not repeat: its repetition has different states. Without this experiment, there
    would be no step that both modes begin in the same state.
    """
    kept = state_steps(reference.path)
    steps = [step for step in chosen.forced if step in kept]
    if not steps or not chosen.of:  # without `of` the other modes begin in the states of the repetition
        return Round(OWN_STATES)
    taped = {
        "tapes": StepSelection.of([step for step in chosen.recorded if step in kept]),
        "measured": StepSelection.of([step for step in chosen.taped if step in kept]),
    }
    noise = 0 if is_measured_beside(reference) else NOISE_REPLAYS
    experiment = Experiment(FROM_ITSELF, reference.path.name)
    plan = begun_in(reference.path / STATES, reference, experiment, steps, **taped, noise_replays=noise, held=True)
    return Round(OWN_STATES, [plan])


def _forced(
    reference: RecordedRun,
    run: RecordedRun,
    states: Path,
    steps: Sequence[int],
    chosen: ChosenSteps,
    kind: str = "forced",
) -> BatchPlan:
    experiment = Experiment(kind, run.path.name, reference.path.name)
    taped = [step for step in chosen.held if step in steps]
    # Lazy tensors have no values op by op: a separate process records their tapes (see `step_workers`).
    if not taped or not spec_of(run).capabilities.tapes_itself:
        return begun_in(states, run, experiment, steps)
    # The verdict needs no tape of this mode: one that takes long is recorded afterwards, for the step in question.
    selected = StepSelection.of(taped)
    return begun_in(states, run, experiment, steps, tapes=selected, noise_replays=0, quick_tapes=True, held=True)


def unsure(reference: RecordedRun, others: Sequence[RecordedRun]) -> Round:
    """Plan a control for each mode whose first significant step was computed only from the reference's state: no
    control has reached the step from its own state, so the step's result may be chance."""
    plans = []
    for run in others:
        evidence = evidence_for(reference, run)
        if evidence.forced is None or evidence.only("b", "again") is not None:
            continue
        scores = scores_of(evidence)
        beyond = [step_score.step for step_score in scores.steps if worst_of([step_score]) > scores.threshold.fault]
        if beyond and beyond[0] not in own_steps(evidence.forced):
            plans.append(repeating(run, control_of(run)))
    return Round("a control for the steps begun in the reference's state", plans)


def control(reference: RecordedRun) -> Repetition | None:
    """Compare a run with its control; return None if it has no control."""
    repeated = EvidenceFolder.of(reference).find(control_of(reference))
    return None if repeated is None else repetition_of(reference, repeated)


def noise_without_tape(reference: RecordedRun, chosen: ChosenSteps, progress: Progress) -> Round:
    """Measure the noise if no step replays: start the reference's steps from states that are one ULP off."""
    repeated, states = EvidenceFolder.of(reference).find(tapes_of(reference)), states_of(reference)
    if not steps_in(states):
        states = reference.path / STATES
    if repeated is None or not steps_in(states):
        return Round("noise")
    noises = [read_noise(repeated.path, step) for step in chosen.taped]
    if any(noise is not None and noise.measured for noise in noises):
        return Round("noise")
    reasons = {noise.reason for noise in noises if noise is not None and noise.reason}
    why = "; ".join(sorted(reasons)) or "no tape was written"
    progress.say(
        f"no step of {reference.manifest.label} can be replayed ({why}): "
        f"its noise is measured by running the script {RERUNS} times"
    )
    made = [Experiment("ulp", reference.path.name, detail=str(seed)) for seed in range(RERUNS)]
    plans = [
        begun_in(states, reference, noise_run, chosen.forced, perturb=seed + 1) for seed, noise_run in enumerate(made)
    ]
    return Round("noise", plans)


def date_onset(
    laboratory: Laboratory, reference: RecordedRun, others: Sequence[RecordedRun], plan: InvestigationRequest
) -> None:
    """Start further steps from the reference's state until each pair's first significant step is known.

    A long run has too many states to keep. So each round keeps the states of evenly spaced steps between the last
    step within rounding and the first beyond it, until these two steps are neighbours.
    """
    if plan.steps is not None:
        return
    a = reference.path.name
    most = most_forced(bytes_of_state(reference) * STATE_SHARE, plan.state_budget)
    for run in others:
        b = run.path.name
        for number in range(MOST_ONSET_ROUNDS):
            scores = scores_of(evidence_for(reference, run))
            steps = steps_between(scores.steps, scores.threshold.fault, most)
            if not steps:
                break
            # The reference runs again to keep the states of these steps, and the mode begins the steps in these states.
            reference_experiment, mode_experiment = (
                Experiment("onset", *names, detail=str(number)) for names in ((a, b), (b, a))
            )
            title = f"where {run.manifest.label} begins to drift, between steps {steps[0] - 1} and {steps[-1] + 1}"
            kept = StepSelection.of(steps)
            laboratory.make(
                Round(title, [repeating(reference, reference_experiment, states=kept, outcomes=kept, until=steps[-1])])
            )
            states = EvidenceFolder.of(reference).path / reference_experiment.name / STATES
            if states.is_dir():
                laboratory.make(Round(FROM_THE_STATE, [begun_in(states, run, mode_experiment, steps)]))


def envelope(reference: RecordedRun, count: int) -> Round:
    """Train the reference `count` times from parameters that are one ULP off."""
    made = [Experiment("perturbed", reference.path.name, detail=str(seed)) for seed in range(count)]
    plans = [
        repeating(reference, experiment, perturb=seed + 1, record="losses") for seed, experiment in enumerate(made)
    ]
    return Round("envelope", plans)


def seeds(runs: Sequence[RecordedRun], count: int) -> Round:
    """Train every mode with `count` seeds, including the seed of the runs."""
    # The runs themselves have the first seed, so a shift of 0 needs no training.
    made = [(run, Experiment("seed", run.path.name, detail=str(n)), n) for n in range(1, count) for run in runs]
    return Round("seeds", [repeating(run, experiment, seed_shift=n, record="losses") for run, experiment, n in made])


def control_of(run: RecordedRun) -> Experiment:
    """Return the experiment that trains the run once more."""
    return Experiment("again", run.path.name)


def has_ops(reference: RecordedRun) -> bool:
    """Check whether a reference that was trained elsewhere came with the ops of a step."""
    repeated = EvidenceFolder.of(reference).find(control_of(reference))
    return repeated is not None and bool(tape_steps(repeated.path))


def kept_steps(run: RecordedRun) -> list[int]:
    """Return the steps whose outcomes the run's control has kept."""
    repeated = EvidenceFolder.of(run).find(control_of(run))
    return [] if repeated is None else outcome_steps(repeated.path)


def tapes_of(reference: RecordedRun) -> Experiment:
    """Return the experiment with the reference's tapes and outcomes: its control, or `from_itself` if that exists."""
    own = Experiment(FROM_ITSELF, reference.path.name)
    return control_of(reference) if EvidenceFolder.of(reference).find(own) is None else own


def states_of(reference: RecordedRun) -> Path:
    """Return the folder of the states that the reference's repetition kept."""
    return EvidenceFolder.of(reference).path / control_of(reference).name / STATES
