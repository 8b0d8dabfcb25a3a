"""The experiments that decide: repetitions, steps started from the reference's state, tapes, and whole trainings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..drift.repetition import repetition
from ..drift.run_comparison import RunComparison, compare_runs
from ..drift.step_noise import read_noise
from ..errors import UsageError
from ..launch.batch_plan import BatchPlan
from ..records.experiment import Experiment
from ..records.step_files import steps_in
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import STATES
from .chosen_steps import STATE_SHARE, bytes_of_state, evenly, forced_steps, selection, taped_steps
from .evidence import EvidenceFolder, evidence_for
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, repeating
from .onset import date_onset
from .pair_scores import scores_of, suspicious_steps
from .referee_runs import referee_beside, run_referee

RERUNS = 4
"""Perturbed re-runs that stand in for the tape where no step replays."""

MOST_CONFIRMED = 8
"""Suspicious steps that are looked at closer."""

ALWAYS_CONFIRMED = 2
"""So few are looked at in any case. Where there are more, and they are most of the steps, no kink explains them."""

EDGE_REPLAYS = 16
"""Replays with stronger rounding of such a step."""


def again(run: RecordedRun) -> Experiment:
    return Experiment("again", run.path.name)


def forced(run: RecordedRun, reference: RecordedRun) -> Experiment:
    return Experiment("forced", run.path.name, reference.path.name)


def _states_of(reference: RecordedRun) -> Path:
    """The states that its repetition has kept."""
    return EvidenceFolder.of(reference).path / again(reference).name / STATES


@dataclass(frozen=True, slots=True)
class Chosen:
    """The steps of one investigation: `forced` start from the reference's state, `taped` are recorded as tapes."""

    forced: tuple[int, ...]
    taped: tuple[int, ...]


def gather(laboratory: Laboratory, runs: Sequence[RecordedRun], plan: InvestigationPlan) -> None:
    """Make every experiment that the pairs of `runs` need; the first run is the reference."""
    reference = runs[0]
    others = [
        run for run in runs[1:] if run.journal.steps and run.manifest.status in ("complete", "nonfinite")
    ]
    if not reference.journal.steps or not others:
        return
    compared = {run.path.name: compare_runs(reference, run) for run in others}
    chosen = choose(reference, list(compared.values()), plan, laboratory)
    _controls(laboratory, reference, others, chosen, plan)
    differing = [run for run in others if not compared[run.path.name].identical]
    if differing and _repeatable(reference):
        folder = EvidenceFolder.of(reference)
        with referee_beside(folder, evidence_for(reference, differing[0]).taped, laboratory.progress):
            _forced(laboratory, reference, differing, chosen, plan)
        _without_tape(laboratory, reference, chosen, plan)
        date_onset(laboratory, reference, differing, plan)
        _confirm(laboratory, reference, differing, plan)
        run_referee(folder, evidence_for(reference, differing[0]).taped, laboratory.progress)
    _trainings(laboratory, reference, others, plan)


def choose(
    reference: RecordedRun, compared: Sequence[RunComparison], plan: InvestigationPlan, laboratory: Laboratory
) -> Chosen:
    """Choose the steps, and say what their states take on the disk."""
    count = len(reference.journal.steps)
    firsts = sorted({first for one in compared if (first := one.first_differing_step) is not None})
    size = bytes_of_state(reference) * STATE_SHARE
    if plan.steps is not None:
        steps = tuple(step for step in range(count) if step in plan.steps)
    else:
        free = shutil.disk_usage(reference.path).free
        steps = forced_steps(count, firsts, size, min(plan.state_budget, free // 4))
    if not steps:
        raise UsageError(
            f"--steps {plan.steps} names no step of this training, which has the steps 0 to {count - 1}"
        )
    laboratory.progress.say(
        f"{len(steps)} of {count} steps are started from the state of {reference.manifest.label}; their states take "
        f"about {max(0.1, len(steps) * size / 2**20):,.1f} MiB a mode in {EvidenceFolder.of(reference).path}"
    )
    return Chosen(steps, taped_steps(steps, firsts))


def _controls(
    laboratory: Laboratory,
    reference: RecordedRun,
    others: Sequence[RecordedRun],
    chosen: Chosen,
    plan: InvestigationPlan,
) -> None:
    """Each mode against itself; the reference keeps states, outcomes and tapes while it is at it."""
    first = selection(chosen.forced[:1])
    plans = [
        repeating(
            reference,
            again(reference),
            states=selection(chosen.forced),
            outcomes=selection(chosen.forced),
            tapes=selection(chosen.taped),
            timeout=plan.timeout,
        )
    ]
    for run in others:
        plans.append(repeating(run, again(run), states=first, timeout=plan.timeout))
    laboratory.experiments("controls", plans)


def _repeatable(reference: RecordedRun) -> bool:
    repeated = EvidenceFolder.of(reference).find(again(reference))
    return repeated is not None and repetition(reference, repeated).repeatable


def _forced(
    laboratory: Laboratory,
    reference: RecordedRun,
    others: Sequence[RecordedRun],
    chosen: Chosen,
    plan: InvestigationPlan,
) -> None:
    if not _has_states(reference):
        return
    laboratory.experiments(
        "from the reference's state",
        [
            _started_from(run, forced(run, reference), chosen.forced, states_of=reference, plan=plan)
            for run in others
        ],
    )


def _has_states(reference: RecordedRun) -> bool:
    """Whether its repetition could keep any: the state of a training that torch.func transforms cannot be read."""
    return bool(steps_in(_states_of(reference)))


def _started_from(
    run: RecordedRun,
    experiment: Experiment,
    steps: Sequence[int],
    *,
    states_of: RecordedRun,
    plan: InvestigationPlan,
    perturb: int | None = None,
) -> BatchPlan:
    return repeating(
        run,
        experiment,
        outcomes=selection(steps),
        resync=_states_of(states_of),
        until=max(steps),
        perturb=perturb,
        timeout=plan.timeout,
    )


def _without_tape(
    laboratory: Laboratory, reference: RecordedRun, chosen: Chosen, plan: InvestigationPlan
) -> None:
    """Where no step replays, measure the noise by starting the reference's steps from states that are one ULP off."""
    repeated = EvidenceFolder.of(reference).find(again(reference))
    if repeated is None or not _has_states(reference):
        return
    noises = [read_noise(repeated.path, step) for step in chosen.taped]
    if any(noise is not None and noise.equal for noise in noises):
        return
    reasons = {noise.reason for noise in noises if noise is not None and noise.reason}
    laboratory.progress.say(
        f"no step of {reference.manifest.label} replays ({'; '.join(sorted(reasons)) or 'no tape was written'}): "
        f"its noise is measured by {RERUNS} runs of the script"
    )
    laboratory.experiments(
        "noise",
        [
            _started_from(
                reference,
                Experiment("ulp", reference.path.name, detail=str(seed)),
                chosen.forced,
                states_of=reference,
                plan=plan,
                perturb=seed + 1,
            )
            for seed in range(RERUNS)
        ],
    )


def _confirm(
    laboratory: Laboratory, reference: RecordedRun, others: Sequence[RecordedRun], plan: InvestigationPlan
) -> None:
    """Look closer at the suspicious steps: a tape of each, with stronger rounding to find discrete choices."""
    wanted, known = set[int](), set[int]()
    for run in others:
        scores = scores_of(evidence_for(reference, run))
        known |= {one.step for one in scores.steps if one.looked_closer}
        suspicious = suspicious_steps(scores)
        if len(suspicious) <= ALWAYS_CONFIRMED or 2 * len(suspicious) <= len(scores.steps):
            wanted |= {
                suspicious[place] for place in evenly(len(suspicious), min(len(suspicious), MOST_CONFIRMED))
            }
    if not wanted:
        return
    last, steps = max(wanted | known), selection(wanted | known)
    laboratory.experiments(
        "suspicious steps",
        [
            repeating(
                reference,
                Experiment("taped", reference.path.name, detail="0"),
                outcomes=steps,
                tapes=steps,
                until=last,
                edge_replays=EDGE_REPLAYS,
                timeout=plan.timeout,
            )
        ],
    )


def _trainings(
    laboratory: Laboratory,
    reference: RecordedRun,
    others: Sequence[RecordedRun],
    plan: InvestigationPlan,
) -> None:
    """Whole trainings, on request: the reference from perturbed parameters, and all modes with other seeds."""
    losses = {"record": "losses", "timeout": plan.timeout}
    envelope_runs(laboratory, reference, plan.envelope, plan)
    laboratory.experiments(
        "seeds",
        [
            repeating(run, Experiment("seed", run.path.name, detail=str(shift)), seed_shift=shift, **losses)
            for shift in range(1, plan.seeds)
            for run in (reference, *others)
        ],
    )


def envelope_runs(
    laboratory: Laboratory, reference: RecordedRun, count: int, plan: InvestigationPlan
) -> None:
    """Train the reference so many times from parameters that are one ULP off."""
    laboratory.experiments(
        "envelope",
        [
            repeating(
                reference,
                Experiment("perturbed", reference.path.name, detail=str(seed)),
                perturb=seed + 1,
                record="losses",
                timeout=plan.timeout,
            )
            for seed in range(count)
        ],
    )
