"""The workers that have the tape of a step: the process of each mode that executes the step's calls on request."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ...launch.batch_plan import BatchPlan
from ...records.results.experiment import Experiment
from ...records.run.step_selection import StepSelection
from ...runs.step_outcomes import noise_path, tape_path
from ..evidence.pair_evidence import EvidenceFolder
from ..evidence.pair_scores import spec_of
from ..experiments.laboratory import Laboratory, begun_in, repeating
from .executed_steps import executed_step
from .question import Inquiry


def holding(laboratory: Laboratory, inquiry: Inquiry, side: Literal["a", "b"]) -> tuple[Path, Path | None] | None:
    """Return the folder of the side's run that has a tape of the step, and the address of its worker; None if there is
    no worker.

    A reference that was trained elsewhere needs none: the localizer executes the ops of its tape.
    """
    evidence, step = inquiry.evidence, inquiry.step
    if side == "a":
        taped = EvidenceFolder.of(evidence.a).find(Experiment("taped-at", evidence.a.path.name, step=step))
        runs = [*evidence.taped, taped] if spec_of(evidence.a).capabilities.tapes_itself else [taped]
    else:
        runs = [evidence.forced, EvidenceFolder.of(evidence.a).find(inquiry.experiment("held"))]
    executed = EvidenceFolder.of(evidence.a).find(executed_step(inquiry, side))
    if executed is not None and tape_path(executed.path, step).exists():
        runs = [executed]
    for run in runs:
        # A failed tape is a result, too: the reason is stored in place of the tape.
        if run is None or not (tape_path(run.path, step).exists() or noise_path(run.path, step).exists()):
            continue
        address = laboratory.workers.address_of(run.path)
        if address is not None or (side == "a" and laboratory.frozen and tape_path(run.path, step).exists()):
            return run.path, address
    return None


def once_more(inquiry: Inquiry, side: Literal["a", "b"]) -> BatchPlan:
    """Return a plan that executes the step once more and tapes it, in a process that becomes a worker."""
    a, b, step = inquiry.evidence.a, inquiry.evidence.b, inquiry.step
    steps = StepSelection.of([step])
    spec = spec_of(a if side == "a" else b)
    is_lazy = not spec.capabilities.tapes_itself
    if is_lazy:
        # The localizer sees whether the ops on the CPU reproduce every bit of the lazy step.
        spec = spec.with_values()
    if side == "a":
        taped = Experiment("taped-at", a.path.name, step=step)
        if is_lazy:
            return begun_in(inquiry.states, a, taped, [step], spec=spec, tapes=steps, held=True)
        return repeating(a, taped, outcomes=steps, tapes=steps, until=step, held=True)
    experiment = inquiry.experiment("held")
    return begun_in(inquiry.states, b, experiment, [step], spec=spec, tapes=steps, noise_replays=0, held=True)
