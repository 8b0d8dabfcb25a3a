"""Calls on the tapes whose results depend on chance, although the verdict does not rest on them.

A read of memory that no op has written may find the same values in every run, and calls that lose numbers may hide
beneath the noise of a step. The tapes that other questions have recorded show both. With `--poison`, each taped step is
also replayed with two different numbers in all memory that no op has written, which shows every read of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...records.results.culprit import Culprit
from ...records.values.call_record import CallRecord
from ...records.values.unfilled_read import read_unfilled
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import tape_steps
from ..evidence.beyond_order import calls_beyond_order, multiples_of
from ..evidence.pair_evidence import PairEvidence
from ..evidence.taped_reads import reads_on_tapes
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory
from ..experiments.tapes_beside import poison_tape
from ..words.repetition_words import beyond_order_sentence, unfilled_remedy
from .question import Inquiry, QuestionAnswer
from .repetitions import nondeterminism, unfilled_culprit, unlike_runs


class TapedCalls:
    """Reads of memory that no op has written, and calls that vary by more than the order of their additions."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return plan.poison and bool(_taped(inquiry.evidence))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        runs = {run.path: run for inquiry in inquiries for run in _taped(inquiry.evidence)}
        for run in runs.values():
            for step in tape_steps(run.path):
                poison_tape(laboratory, run.path, step)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        unlike = {run.path for run, *_ in unlike_runs(evidence, threshold)}  # the question about repetitions names them
        culprits, sentences = list[Culprit](), dict[str, tuple[str, list[str]]]()
        for run, made in ((evidence.a, evidence.made["a"]), (evidence.b, evidence.made["b"])):
            for place, culprit, sentence in () if run.path in unlike else _findings(run, list(made.values())):
                _, labels = sentences.setdefault(place, (sentence, []))  # both sides may execute the same call
                if run.manifest.label not in labels:
                    labels.append(run.manifest.label)
                    culprits.append(culprit)
        return QuestionAnswer(culprits, sentences=[f"{' and '.join(of)}: {text}" for text, of in sentences.values()])


def _findings(run: RecordedRun, made: Sequence[RecordedRun]) -> Iterator[tuple[str, Culprit, str]]:
    """Yield the findings on the tapes of a run's experiments: a key for the place, the culprit and a sentence."""
    reads = [read for experiment in made for read in (*read_unfilled(experiment.path), *reads_on_tapes(experiment))]
    if reads:
        first = min(reads, key=lambda read: read.call.step)
        culprit = unfilled_culprit(run, first)
        yield f"read {first.call.line}", culprit, f"{culprit.text}; remedy: {unfilled_remedy(first)}"
    for experiment in made:
        for step, call in calls_beyond_order(experiment):
            record = CallRecord(step, call["op"], call["line"] or "", call["phase"], call["module"])
            text = beyond_order_sentence(record, *multiples_of(call))
            yield f"{record.name} {record.line}", nondeterminism(run, record, "computed", step, text), text


def _taped(evidence: PairEvidence) -> list[RecordedRun]:
    runs = [run for made in evidence.made.values() for run in made.values()]
    return [run for run in runs if tape_steps(run.path)]
