"""The interface of a question: a way to look for the causes of a drift. It is asked about a step, and answered when the
pair is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...records.results.culprit import Culprit, Proof, SwappedIn, SwappedOut
from ...records.results.experiment import Experiment
from ...records.results.findings import CompilerScores, PairFindings, PartScores, PinnedInput
from ...runs.step_outcomes import state_steps
from ..evidence.pair_evidence import PairEvidence
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory

SEARCHED = ("rounding", "beyond-rounding", "nonfinite")
"""Verdicts whose cause lies in a step that both modes start from the same state."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A pair whose drift is to be explained, the findings about it so far, and the step `at` to examine. `at` is None
    if there is no step that both modes started from the same state."""

    evidence: PairEvidence
    at: int | None
    pair: PairFindings

    @property
    def step(self) -> int:
        assert self.at is not None
        return self.at

    @property
    def threshold(self) -> float:
        """The score at which a fault begins."""
        assert self.pair.threshold is not None
        return self.pair.threshold

    @property
    def states(self) -> Path:
        """The folder of states of the first of the reference's runs that has the step's state, else of the first
        run."""
        # The runs that keep states on purpose come first: the models' inputs may be stored beside the states. They
        # include the runs of the search for the first significant step.
        runs = [*self.evidence.kept, self.evidence.a]
        having = [run for run in runs if self.step in state_steps(run.path)]
        return (having[0] if having else runs[0]).path / "states"

    def experiment(self, kind: str, detail: str = "") -> Experiment:
        """Return an experiment on this step: the other mode against the reference."""
        a, b = self.evidence.a, self.evidence.b
        return Experiment(kind, b.path.name, a.path.name, self.step, detail)


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The answer to a question about a pair: culprits, and sentences and notes for users.

    instead: culprits that count only if a drift beyond rounding has no other proven culprit
    compiler, parts: scores that the findings keep; only one question measures each of them
    pinned: the inputs that numdrift pins and on which the script depends
    """

    culprits: Sequence[Culprit] = ()
    instead: Sequence[Culprit] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()
    compiler: CompilerScores | None = None
    parts: PartScores | None = None
    pinned: Sequence[PinnedInput] = ()

    @classmethod
    def joined(cls, answers: Sequence[QuestionAnswer]) -> QuestionAnswer:
        """Join the answers to several questions. The `instead` culprits of the last question come first."""
        return cls(
            culprits=[culprit for answer in answers for culprit in answer.culprits],
            instead=[culprit for answer in reversed(answers) for culprit in answer.instead],
            sentences=[sentence for answer in answers for sentence in answer.sentences],
            notes=[note for answer in answers for note in answer.notes],
            compiler=next((answer.compiler for answer in answers if answer.compiler is not None), None),
            parts=next((answer.parts for answer in answers if answer.parts is not None), None),
            pinned=[entry for answer in answers for entry in answer.pinned],
        )


class Question(Protocol):
    """A way to look for causes. It stores its results beside the runs, where a later judgement of the pair finds
    them."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        """Check whether the findings so far leave something to find out about this step."""

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        """Run the experiments on the steps of several pairs. Raises Interrupted."""

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        """Return the results so far, those about `step` first. Runs nothing."""


def proven(verdict: str | None, culprits: Sequence[Culprit]) -> list[Culprit]:
    """Return the proven culprits to swap out: those beyond rounding, or all of them if the verdict is rounding."""
    # If there is a fault, culprits within rounding are not swapped out: every mode has such culprits.
    proven_culprits = [culprit for culprit in culprits if culprit.is_proven]
    return [
        culprit for culprit in proven_culprits if verdict == "rounding" or culprit.significance == "beyond-rounding"
    ]


def mode_culprit(
    *, kind: str, step: int, name: str, before: float, after: float, threshold: float, why: str, **more: Any
) -> Culprit:
    """Build a culprit that is not an op but a way in which a mode executes the step, such as the cuts of lazy graphs or
    a setting of the compiler.

    If the mode executes the step in a different way, the score goes from `before` to `after`. These two executions
    prove both swaps. `more` are further fields of the culprit.
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
