"""Steps of lazy tensors taken once more, to record the graphs that are executed, where what their ops give one by one
on the CPU is not what they gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ..drift.verdict import worst_of
from ..records.experiment import Experiment
from ..records.localization_record import Localization
from ..records.mode_spec import ModeSpec
from ..records.step_selection import StepSelection
from ..runs.step_outcomes import tape_path
from .evidence import EvidenceFolder
from .laboratory import Round, begun_in
from .pair_scores import spec_of
from .question import Inquiry

SIDES: tuple[Literal["a", "b"], ...] = ("a", "b")


def is_to_be_executed(inquiry: Inquiry, found: Localization | None) -> bool:
    """Whether the ops of lazy tensors, one by one on the CPU, are not what was executed, and nobody has looked yet."""
    sides = [side for side in SIDES if spec_of_side(inquiry, side).base == "lazy"]
    made = EvidenceFolder.of(inquiry.evidence.a)
    return (
        found is not None
        and is_of_another_step(found, inquiry)
        and bool(sides)
        and all(made.find(executed_step(inquiry, side)) is None for side in sides)
    )


def is_of_another_step(found: Localization, inquiry: Inquiry) -> bool:
    """Whether the tapes of a localization are not of what was executed, by more than counts beside the step's score."""
    score = worst_of([one for one in inquiry.pair.steps if one.step == inquiry.step])
    return found.is_of_another_step(score)


def has_executed(inquiry: Inquiry) -> bool:
    """Whether there is a tape of what lazy tensors have executed in the step."""
    found = [EvidenceFolder.of(inquiry.evidence.a).find(executed_step(inquiry, side)) for side in SIDES]
    return any(run is not None and tape_path(run.path, inquiry.step).exists() for run in found)


def as_executed(inquiries: Sequence[Inquiry]) -> Round:
    """The steps of lazy tensors once more, with tapes of the graphs that are executed, by processes that are held."""
    plans = {}
    for inquiry in inquiries:
        steps = StepSelection.of([inquiry.step])
        for side in SIDES:
            run, experiment = inquiry.evidence.a if side == "a" else inquiry.evidence.b, executed_step(inquiry, side)
            if spec_of_side(inquiry, side).base == "lazy":
                # of the reference's its noise is measured, too
                more: dict[str, Any] = {} if side == "a" else {"noise_replays": 0}
                states = inquiry.states
                plans[experiment] = begun_in(states, run, experiment, [inquiry.step], tapes=steps, held=True, **more)
    said = ", ".join(f"step {one.step} of {one.evidence.b.manifest.label}" for one in inquiries)
    return Round(f"the graphs that lazy tensors execute in {said}", list(plans.values()))


def executed_step(inquiry: Inquiry, side: Literal["a", "b"]) -> Experiment:
    if side == "a":
        return Experiment("executed-at", inquiry.evidence.a.path.name, step=inquiry.step)
    return inquiry.experiment("executed")


def spec_of_side(inquiry: Inquiry, side: Literal["a", "b"]) -> ModeSpec:
    return spec_of(inquiry.evidence.a if side == "a" else inquiry.evidence.b)
