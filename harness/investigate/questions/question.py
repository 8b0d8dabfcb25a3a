"""The interface of a way to look for causes: a question that is asked of a step, and answers when the pair is
judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...records.results.culprit import Culprit, Proof, SwappedIn, SwappedOut
from ...records.results.experiment import Experiment
from ...records.results.findings import CompilerScores, PairFindings, PartScores
from ...runs.step_outcomes import state_steps
from ..evidence.pair_evidence import PairEvidence
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory

SEARCHED = ("rounding", "beyond-rounding", "nonfinite")
"""Verdicts whose cause is in a step that both modes took from one state."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A pair whose drift is to be explained, the findings about it so far, and the step `at` to look into. `at` is None
    where no step was taken by both modes from one state."""

    evidence: PairEvidence
    at: int | None
    pair: PairFindings

    @property
    def step(self) -> int:
        assert self.at is not None
        return self.at

    @property
    def threshold(self) -> float:
        """The score from which on the drift is a fault."""
        assert self.pair.threshold is not None
        return self.pair.threshold

    @property
    def states(self) -> Path:
        """The folder of the reference's run that has, or should have, the state of the step."""
        # The inputs of the models may be stored beside a state that was kept on purpose.
        runs = [*self.evidence.kept, self.evidence.a]
        having = [run for run in runs if self.step in state_steps(run.path)]  # a round of onsets may have kept it
        return (having[0] if having else runs[0]).path / "states"

    def experiment(self, kind: str, detail: str = "") -> Experiment:
        """Return an experiment with this step, of the other mode against the reference."""
        a, b = self.evidence.a, self.evidence.b
        return Experiment(kind, b.path.name, a.path.name, self.step, detail)


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The answer of a question about a pair: culprits, and sentences and notes for users.

    instead: culprits that count only where a drift beyond rounding has no other proven culprit
    compiler, parts: scores that the findings keep, each of the one question that measures them
    """

    culprits: Sequence[Culprit] = ()
    instead: Sequence[Culprit] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()
    compiler: CompilerScores | None = None
    parts: PartScores | None = None

    @classmethod
    def joined(cls, answers: Sequence[QuestionAnswer]) -> QuestionAnswer:
        """Return the answers of several questions as one. Of the culprits `instead`, those of the last come first."""
        return cls(
            culprits=[culprit for answer in answers for culprit in answer.culprits],
            instead=[culprit for answer in reversed(answers) for culprit in answer.instead],
            sentences=[sentence for answer in answers for sentence in answer.sentences],
            notes=[note for answer in answers for note in answer.notes],
            compiler=next((answer.compiler for answer in answers if answer.compiler is not None), None),
            parts=next((answer.parts for answer in answers if answer.parts is not None), None),
        )


class Question(Protocol):
    """A way to look for causes. It leaves its results beside the runs, so that a later judgement of the pair finds
    them."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        """Check whether there is something to find out about this step, by what is known so far."""

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        """Make the experiments, for steps of several pairs. Raises Interrupted."""

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        """Return the results so far, those about `step` first. Runs nothing."""


def proven(verdict: str | None, culprits: Sequence[Culprit]) -> list[Culprit]:
    """Return the proven culprits that must go: those beyond rounding, and all where the verdict is rounding."""
    # Beside a fault, culprits within rounding stay: they are the same as in any mode.
    proven_culprits = [culprit for culprit in culprits if culprit.is_proven]
    return [
        culprit for culprit in proven_culprits if verdict == "rounding" or culprit.significance == "beyond-rounding"
    ]


def mode_culprit(
    *, kind: str, step: int, name: str, before: float, after: float, threshold: float, why: str, **more: Any
) -> Culprit:
    """Build a culprit that is not an op but a way in which a mode executes: where lazy graphs are cut, how the compiler
    is set.

    With another way in its place, the score goes from `before` to `after`. These two executions prove both swaps.
    `more` are further fields of the culprit.
    """
    return Culprit(
        kind=kind,
        status="culprit",
        phase="forward",
        name=name,
        step=step,
        significance="beyond-rounding" if before > threshold else "rounding",
        share_of_drift=1.0,
        proof=Proof(
            SwappedIn(True, score_before=after, score_after=before),
            SwappedOut(True, score_before=before, score_after=after, score_without_all=after),
            why=why,
        ),
        **more,
    )
