"""The choice of the step of a pair to examine next.

    --step N                that step, and no other
    different inputs        a step in which the batch can be followed to its origin
    the first inquiry       the first significant step, or one right before it that comes close to the threshold;
                            if all drift is rounding, the step that is worth a look, else a step where the runs
                            suddenly diverge, else the last step that differs;
                            if the step in double contradicts the noise, the worst step
    a step was explained    the worst step beyond the threshold, unless it is explained, too
    else                    the first significant step of the current verdict

No step is examined twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..drift.verdict import worst_of
from ..errors import UsageError
from ..records.results.culprit import SETUP
from ..records.results.findings import JUMP, PairFindings, StepFindings
from ..records.run.step_selection import StepSelection
from ..runs.step_outcomes import state_steps, tape_path
from .evidence.batches_followed import batch_step, step_with_its_data
from .evidence.pair_evidence import PairEvidence
from .experiments.investigation_plan import InvestigationRequest
from .questions.question import SEARCHED, Inquiry

NEAR = 0.5
"""A fault may begin in a step right before a significant one, if the step's score is at least this share of the
threshold."""


def next_inquiry(
    pair: PairFindings, evidence: PairEvidence, before: Sequence[Inquiry], plan: InvestigationRequest
) -> Inquiry | None:
    """Return an inquiry into the next step of a pair after the inquiries `before`; None if no step is left.

    Raises UsageError for a requested step that is not available.
    """
    step = _next_step(pair, evidence, before, plan)
    if plan.localize == "faults" and pair.verdict == "rounding":
        return None
    if step is None or any(inquiry.at == step for inquiry in before):
        return None
    return Inquiry(evidence, step, pair) if pair.threshold and evidence.forced is not None else None


def _next_step(
    pair: PairFindings, evidence: PairEvidence, before: Sequence[Inquiry], plan: InvestigationRequest
) -> int | None:
    if plan.step is not None:
        return None if before else _requested(plan.step, evidence)
    followed = batch_step(evidence) if pair.verdict == "different-setup" else None
    if followed is not None:  # differing inputs are followed to their origin, but their effects are not
        return followed
    if not before:
        return _first(pair, evidence)
    if any(step_findings.explained for step_findings in pair.steps):
        # If the worst step is explained, the other steps count as explained, too, although they were not examined.
        beyond = [findings for findings in pair.steps if worst_of([findings]) > (pair.threshold or math.inf)]
        worst = max(beyond, key=lambda findings: worst_of([findings]), default=None)
        return None if worst is None or worst.explained else worst.step
    if pair.first_significant_step == 0 and [inquiry.at for inquiry in before] == [0]:
        return step_with_its_data(pair, evidence)
    return pair.first_significant_step


def _requested(step: int, evidence: PairEvidence) -> int:
    kept = sorted({kept_step for run in (evidence.a, *evidence.kept) for kept_step in state_steps(run.path)})
    if step not in kept:
        raise UsageError(
            f"step {step} was not started from the reference's state, but steps {StepSelection.of(kept)} were: "
            "`numdrift investigate --steps LIST` chooses other steps"
        )
    return step


def _first(pair: PairFindings, evidence: PairEvidence) -> int | None:
    """Return the first significant step, else the step that is worth a look, else a step where the runs suddenly
    diverge, else the last step that differs, of those with a tape if there are any."""
    setup = [culprit for culprit in pair.culprits if culprit.kind == SETUP]
    draws_only = all(culprit.what == "generator" for culprit in setup)  # the mode itself may draw differently
    # The step in double contradicts a drift within noise: an op that is wrong by itself decides (see `verdict`).
    is_contradicted = pair.verdict is None and pair.score is not None
    if not (pair.verdict in SEARCHED or is_contradicted or (pair.verdict == "different-setup" and draws_only)):
        return None
    onset, forced = _onset(pair), evidence.forced
    if onset is not None:
        return onset
    sudden = {kind.first for kind in pair.kinds if kind.aspect == JUMP}

    def order(step_findings: StepFindings) -> tuple[bool, bool, bool, int]:
        # A fault that acts rarely, such as a different choice, makes the runs diverge suddenly. Else, a step of which
        # both workers have a tape needs no further training run. Of several such steps, the last is chosen: unlike the
        # step with the largest score, it is the same whichever mode is the reference.
        held = forced is not None and tape_path(forced.path, step_findings.step).exists()
        return step_findings.step not in sudden, not held, not step_findings.taped, -step_findings.step

    differing = [step_findings for step_findings in pair.steps if step_findings.score or step_findings.discrete]
    if (pair.inspect or is_contradicted) and differing:  # the answer sends a person to this step
        return max(differing, key=lambda step_findings: worst_of([step_findings])).step
    chosen = min(differing, key=order, default=None)
    return None if chosen is None else chosen.step


def _onset(pair: PairFindings) -> int | None:
    """Return the first significant step, or the first of the steps right before it whose scores come near the
    threshold.

    A fault may begin in a noisier step. Unless a culprit in that step is wrong by itself, the significant step is
    examined next.
    """
    step = pair.first_significant_step
    for step_findings in reversed(pair.steps):
        if step is None or step_findings.step >= step:
            continue
        if step_findings.explained or worst_of([step_findings]) < NEAR * (pair.threshold or math.inf):
            break
        step = step_findings.step
    return step
