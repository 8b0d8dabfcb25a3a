"""Lazy steps that are executed once more, to record the graphs that lazy tensors execute.

This is necessary if the ops of a step, executed one by one on the CPU, do not reproduce the results of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...drift.verdict import worst_of
from ...records.modes.mode_spec import ModeSpec
from ...records.results.experiment import Experiment
from ...records.results.localization_record import Localization
from ...records.run.step_selection import StepSelection
from ...runs.step_outcomes import tape_path
from ..evidence.pair_evidence import EvidenceFolder
from ..evidence.pair_scores import spec_of
from ..experiments.laboratory import Round, begun_in
from .question import Inquiry

SIDES: tuple[Literal["a", "b"], ...] = ("a", "b")


def is_to_be_executed(inquiry: Inquiry, localization: Localization | None) -> bool:
    """Check whether the step must be executed once more to record its graphs.

    This is so if the ops of lazy tensors, executed one by one on the CPU, do not reproduce the step, and no run has
    recorded the step's graphs yet.
    """
    sides = [side for side in SIDES if not spec_of_side(inquiry, side).capabilities.tapes_itself]
    folder = EvidenceFolder.of(inquiry.evidence.a)
    return (
        localization is not None
        and is_of_another_step(localization, inquiry)
        and bool(sides)
        and all(folder.find(executed_step(inquiry, side)) is None for side in sides)
    )


def is_of_another_step(localization: Localization, inquiry: Inquiry) -> bool:
    """Check whether the results of the localized tape differ from those of the mode's own execution of the step, by an
    amount that is not negligible compared with the step's score."""
    score = worst_of([step_findings for step_findings in inquiry.pair.steps if step_findings.step == inquiry.step])
    return localization.is_of_another_step(score)


def has_executed(inquiry: Inquiry) -> bool:
    """Check whether there is a tape of the graphs that lazy tensors executed in the step."""
    runs = [EvidenceFolder.of(inquiry.evidence.a).find(executed_step(inquiry, side)) for side in SIDES]
    return any(run is not None and tape_path(run.path, inquiry.step).exists() for run in runs)


def as_executed(inquiries: Sequence[Inquiry]) -> Round:
    """Return a round that executes the lazy steps once more, in workers, with tapes of the executed graphs."""
    plans = {}
    for inquiry in inquiries:
        steps = StepSelection.of([inquiry.step])
        for side in SIDES:
            run, experiment = inquiry.evidence.a if side == "a" else inquiry.evidence.b, executed_step(inquiry, side)
            if not spec_of_side(inquiry, side).capabilities.tapes_itself:
                # Measure the noise only on the reference's tape.
                more: dict[str, Any] = {} if side == "a" else {"noise_replays": 0}
                states = inquiry.states
                plans[experiment] = begun_in(states, run, experiment, [inquiry.step], tapes=steps, held=True, **more)
    listed = ", ".join(
        f"step {lazy_inquiry.step} of {lazy_inquiry.evidence.b.manifest.label}" for lazy_inquiry in inquiries
    )
    return Round(f"the graphs that lazy tensors execute in {listed}", list(plans.values()))


def executed_step(inquiry: Inquiry, side: Literal["a", "b"]) -> Experiment:
    if side == "a":
        return Experiment("executed-at", inquiry.evidence.a.path.name, step=inquiry.step)
    return inquiry.experiment("executed")


def spec_of_side(inquiry: Inquiry, side: Literal["a", "b"]) -> ModeSpec:
    return spec_of(inquiry.evidence.a if side == "a" else inquiry.evidence.b)
