"""The search for reads of memory that no op has written, on the tapes of both modes (`--poison`).

The worker of each taped step replays it twice, with a different number in all such memory each time. The question about
repetitions (see repetitions) reports these reads, as it reports reads that were found by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import tape_steps
from ..evidence.pair_evidence import PairEvidence
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory
from ..experiments.tapes_beside import poison_tape
from .question import Inquiry, QuestionAnswer


class UnwrittenMemory:
    """Reads of memory that no op has written."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return plan.poison and bool(_taped(inquiry.evidence))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        runs = {run.path: run for inquiry in inquiries for run in _taped(inquiry.evidence)}
        for run in runs.values():
            for step in tape_steps(run.path):
                poison_tape(laboratory, run.path, step)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        return QuestionAnswer()


def _taped(evidence: PairEvidence) -> list[RecordedRun]:
    runs = [run for made in evidence.made.values() for run in made.values()]
    return [run for run in runs if tape_steps(run.path)]
