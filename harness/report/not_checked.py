"""Sentences about the limits of an investigation, with the options that check more."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.results.findings import PairFindings
from ..runs.recorded_run import RecordedRun


def not_checked(pair: PairFindings, runs: Sequence[RecordedRun]) -> list[str]:
    """Return a sentence for each thing that a reader might assume was checked, but was not."""
    sentences = []
    trained = max((run.manifest.steps for run in runs if run.manifest.mode in (pair.a, pair.b)), default=0)
    if pair.steps and len(pair.steps) < trained:
        count = trained - len(pair.steps)
        were, they = ("was", "it is") if count == 1 else ("were", "they are")
        sentences.append(
            f"{count:,} of {trained:,} steps {were} not started from the reference's state: {they} known only from "
            "runs that continued from their own state (--steps chooses other steps)"
        )
    elif not pair.steps and pair.verdict not in ("identical", "failed"):
        sentences.append(
            "no step of both modes was started from the same state, so nothing is known about single steps"
        )
    proven = [culprit for culprit in pair.culprits if culprit.is_proven]
    if proven and pair.without is None:
        sentences.append(
            "the training run was not repeated without the causes (`numdrift investigate` repeats it unless "
            "--no-confirm is given)"
        )
    if pair.curve is None and pair.verdict not in ("identical", "failed"):
        sentences.append(
            "no envelope was measured, so it is not known how far rounding alone spreads the loss curve (--envelope 8)"
        )
    if pair.lag is None and pair.verdict not in ("identical", "failed"):
        sentences.append(
            "only one seed was tried, so it is not known whether a mode learns more slowly on average (--seeds 12)"
        )
    if pair.referee is None and pair.verdict in ("rounding", "beyond-rounding"):
        sentences.append(
            "the step was not computed in double, so it is not known which side is closer to the exact result"
        )
    suspects = len([culprit for culprit in pair.culprits if culprit.proof is not None and not culprit.is_proven])
    if suspects:
        have = "suspect has" if suspects == 1 else "suspects have"
        sentences.append(f"{suspects} {have} no proof and may not contribute to the drift")
    if pair.unexplained:
        sentences.append(pair.unexplained)
    if not pair.calibrated and pair.threshold is not None:
        sentences.append("the threshold is the general one: no benign variants of this backend have been measured")
    return sentences
