"""What whole trainings say of a pair: the envelope of perturbed ones, and the lag over seeds."""

from __future__ import annotations

from dataclasses import dataclass

from ..drift.curve_envelope import Envelope, loss_envelope
from ..drift.lag import LagTest, lag_test
from ..drift.loss_distance import LossSeries
from ..runs.recorded_run import RecordedRun
from .evidence import PairEvidence


@dataclass(frozen=True, slots=True)
class Curves:
    """None where the trainings for it were not asked for; `sentences` put both into words."""

    envelope: Envelope | None
    lag: LagTest | None
    sentences: tuple[str, ...]


def curves_of(evidence: PairEvidence, comparisons: int) -> Curves:
    """Judge the curves. `comparisons` pairs are judged together, for which the lag test is corrected."""
    a, b = series(evidence.a), series(evidence.b)
    label = evidence.b.manifest.label
    envelope = (
        loss_envelope(a, b, [series(run) for run in evidence.several("a", "perturbed")])
        if evidence.several("a", "perturbed")
        else None
    )
    lag = None
    if evidence.seeds:
        pairs = [(a, b), *((series(ours), series(theirs)) for ours, theirs in evidence.seeds)]
        lag = lag_test(pairs, mode=label, comparisons=comparisons)
    said = [envelope.words(label) if envelope else "", lag.text if lag else ""]
    return Curves(envelope, lag, tuple(sentence for sentence in said if sentence))


def series(run: RecordedRun) -> LossSeries:
    """The losses of a run, step by step."""
    return LossSeries([step.step for step in run.journal.steps], [step.loss for step in run.journal.steps])
