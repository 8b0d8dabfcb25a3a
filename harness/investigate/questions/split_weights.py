"""The weights of the parts of a batch that one mode splits and the other does not.

The answer needs no experiment: the resynced steps have the gradients after each backward.

    for part in batch.chunk(4):
        loss = cross_entropy(model(part), targets, ignore_index=0) / 4      # the mean of 4 means over unequal counts
        loss.backward()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...drift.setup.split_batch import SplitBatch
from ...drift.setup.split_step import PartWeights
from ...drift.verdict import worst_of
from ...errors import JournalError, RunNotFound
from ...records.results.culprit import WEIGHTS, Culprit
from ...runs.mapped_tensors import read_tensor_file
from ...runs.step_outcomes import tape_path, tape_steps
from ...tape.origin import line_of
from ..evidence.pair_evidence import PairEvidence
from ..evidence.pair_scores import scores_of, weights_of
from ..evidence.split_batches import split_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory
from .question import Inquiry, QuestionAnswer, mode_culprit

MOST_WEIGHTS = 8
"""The largest number of weights that a sentence lists."""

SAME = 1e-3
"""The relative distance up to which all weights count as one."""


class SplitWeights:
    """The weights of the parts of a split batch, if other weights remove the drift."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return False

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        return None

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        split = split_of(evidence)
        if split is None or not split.is_same_data:
            return QuestionAnswer()
        labels = (evidence.a.manifest.label, evidence.b.manifest.label)
        checked = f"{len(split.checked)} step{'s' if len(split.checked) > 1 else ''}"
        sentence = (
            f"{split.in_words(*labels)}: these are the rows of the other mode's batch (compared bit for bit in "
            f"{checked}), so gradients should differ only by the order of their sums"
        )
        culprit = _culprit(evidence, split, threshold)
        changed = "" if culprit is not None else _changed_later(evidence, split, threshold)
        sentences = [sentence, *([changed] if changed else [])]
        return QuestionAnswer([] if culprit is None else [culprit], sentences=sentences)


def _changed_later(evidence: PairEvidence, split: SplitBatch, threshold: float) -> str:
    """Say that the gradients after the last backward differ although the step does not; "" if they do not differ."""
    for scored in scores_of(evidence).steps:
        with suppress(JournalError, RunNotFound):
            found = weights_of(evidence, scored.step) if scored.step in split.steps else None
            if found is not None and found.before > threshold >= worst_of([scored]):
                return (
                    f"after the last backward of step {scored.step}, the gradients differ (z {found.before:.3g}), but "
                    "the parameters and states after the step are the same up to rounding: a script changes its "
                    "gradients before its optimizer uses them"
                )
    return ""


def _culprit(evidence: PairEvidence, split: SplitBatch, threshold: float) -> Culprit | None:
    """Return the weighting as a culprit; None unless it explains the first step beyond the threshold."""
    scored = (of_step for of_step in scores_of(evidence).steps if of_step.step in split.steps)
    first = next((of_step.step for of_step in scored if worst_of([of_step]) > threshold), None)
    if first is None:
        return None
    with suppress(JournalError, RunNotFound):
        found = weights_of(evidence, first)
        if found is not None and found.before > threshold >= found.after:
            return mode_culprit(
                kind=WEIGHTS,
                step=first,
                name="the weighting of the losses",
                before=found.before,
                after=found.after,
                threshold=threshold,
                why=_proof(found, evidence.b.manifest.label, evidence.a.manifest.label),
                source=_line_of_the_loss(evidence),
                reasons=[_in_words(found.weights)],
            )
    return None


def _in_words(weights: Sequence[float]) -> str:
    """Say how the parts should count, in relation to how they count."""
    if max(weights) - min(weights) <= SAME * max(map(abs, weights)):
        factor = weights[0]
        much = f"{1 / factor:.4g} times as much as" if math.isfinite(factor) and factor else "unlike"
        return f"every part counts {much} its share of the whole batch"
    listed = ", ".join(f"{weight:.4g}" for weight in weights[:MOST_WEIGHTS])
    more = f" and {len(weights) - MOST_WEIGHTS} more" if len(weights) > MOST_WEIGHTS else ""
    return f"to count like its share of the whole batch, each part needs the weight {listed}{more}"


def _proof(found: PartWeights, b: str, a: str) -> str:
    return (
        f"with these weights of its {len(found.weights)} parts, the gradients of {b} equal those of {a} up to "
        f"rounding: z goes from {found.before:.3g} to {found.after:.3g}"
    )


def _line_of_the_loss(evidence: PairEvidence) -> str | None:
    """Return the line of the last op of the forward, which computes the loss, in a tape of the reference."""
    for run in evidence.taped:
        for step in tape_steps(run.path):
            with suppress(JournalError, KeyError, TypeError, IndexError):
                facts = read_tensor_file(tape_path(run.path, step)).facts
                line = _last_line(facts)
                if line is not None:
                    return line
    return None


def _last_line(facts: Any) -> str | None:
    """Return the innermost frame of the last forward call before the first call of the backward.

    The gradient of the loss itself, a one, is made in the line that calls `backward()`, which computes no loss.
    """
    line = None
    for call in facts["calls"]:
        if call["phase"] == "backward":
            return line
        if call["phase"] == "forward" and "place" in call and not str(call["op"]).startswith("aten.ones_like"):
            line = line_of(str(facts["places"][call["place"]][0]))
    return None
