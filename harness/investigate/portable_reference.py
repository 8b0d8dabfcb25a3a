"""A reference that other machines compare with: one run, and steps of it with their states, outcomes and noise.

ref.zip     cpu/                    the run: losses, digests of every step, environment
            evidence/cpu-again/     the same run once more: states, outcomes and noise of chosen steps
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..launch.batch_plan import BatchPlan
from ..records.results.findings import Findings
from ..records.run.run_request import NOISE_REPLAYS
from ..records.run.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun, load_run, runs_in
from ..runs.run_layout import MANIFEST
from ..runs.step_outcomes import FOLDERS, noise_steps, outcome_steps
from ..search import evenly
from .evidence.pair_evidence import EvidenceFolder
from .experiments.chosen_steps import STATE_SHARE, bytes_of_state
from .experiments.investigation_plan import InvestigationRequest
from .experiments.laboratory import Interrupted, Laboratory, Round, repeating
from .experiments.rounds import control, control_of
from .method import investigate_runs

USUAL_STEPS = 8
"""The number of steps that are kept unless the user chooses some."""


def record_reference(batch: BatchPlan, plan: InvestigationRequest, laboratory: Laboratory) -> RecordedRun:
    """Train the only mode of a batch, and once more to keep steps of it.

    The steps are those of the plan, else at most USUAL_STEPS that fit into its state budget: the first, the last, and
    evenly spaced ones. Raises UsageError if the training fails, does not repeat itself, or has no such step.
    """
    try:
        (run,) = laboratory.free(batch)
        if run.manifest.failed or not run.journal.steps:
            raise UsageError(f"{run.path} is no reference: {run.manifest.message or 'it recorded no step'}")
        count = len(run.journal.steps)
        if plan.steps is None:
            most = max(2, min(USUAL_STEPS, plan.state_budget // max(1, bytes_of_state(run) * STATE_SHARE)))
            steps = sorted({0, count - 1, *evenly(count, min(count, most))})
        else:
            steps = [step for step in range(count) if step in plan.steps]
        if not steps:
            raise UsageError(f"--steps {plan.steps} selects no step of this training, which has steps 0 to {count - 1}")
        kept = StepSelection.of(steps)
        fields = {"states": kept, "outcomes": kept, "tapes": kept, "measured": kept}
        plans = [repeating(run, control_of(run), **fields, noise_replays=NOISE_REPLAYS, keep_inputs=True)]
        laboratory.make(Round("the same training once more, to keep its steps", plans))
    except Interrupted:
        raise KeyboardInterrupt from None
    repeated = control(run)
    if repeated is None or not repeated.repeatable:
        raise UsageError(
            f"{run.manifest.label} does not repeat itself, so nothing can be compared with it: "
            "add deterministic=on to its mode"
        )
    return run


def is_packed(name: str, *, ops: bool = False) -> bool:
    """Check whether a reference's archive has the file with this name: everything except pickles and, unless `ops` are
    kept, the tapes of the kept steps and the earlier files that the tapes refer to."""
    path = Path(name)
    is_of_tape = path.parent.name == FOLDERS["tape"] and path.name.startswith(("tape-", "earlier-"))
    return (ops or not is_of_tape) and not name.endswith(".pkl")


def is_report(name: str) -> bool:
    """Check whether the file with this name is about the investigation, and in no run's folder."""
    return "/" not in name


def reference_in(folder: Path, archive: Path) -> RecordedRun:
    """Return the reference that was unpacked from an archive into the folder. Raises UsageError if there is none."""
    recorded = runs_in(folder)
    marked = [run for run in recorded if run.manifest.elsewhere]
    runs = marked or [run for run in recorded if EvidenceFolder.of(run).find(control_of(run)) is not None]
    repeated = EvidenceFolder.of(runs[0]).find(control_of(runs[0])) if len(runs) == 1 else None
    if repeated is None or not outcome_steps(repeated.path) or not noise_steps(repeated.path):
        raise UsageError(f"{archive} is no reference; `numdrift reference SCRIPT --to {archive}` makes one")
    (run,) = runs
    if not marked:
        replace(run.manifest, elsewhere=str(archive)).write(run.path / MANIFEST)
    return load_run(run.path)


def investigate_against(
    reference: RecordedRun, batch: BatchPlan, plan: InvestigationRequest, laboratory: Laboratory
) -> Findings:
    """Train the modes of a batch, and compare them with a reference that was trained elsewhere.

    The steps of the modes begin in the states of the reference. If the archive has the ops of these steps, they are
    executed here to find the causes; otherwise, no cause is looked for.
    """
    try:
        runs = [reference, *laboratory.free(batch)]
    except Interrupted:
        raise KeyboardInterrupt from None
    return investigate_runs(runs, plan, laboratory)
