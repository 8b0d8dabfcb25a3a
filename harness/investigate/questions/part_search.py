"""The search for the part of a model that carries a mode's drift. One step of the reference is executed again and
again, with ever smaller parts of the model on the backend.

Everything else is executed on the CPU, in the reference's process: the loss function, the optimizer and the other
operators. Nothing inside the backend is observed. The backend's effect on an operator and on the operator's gradient
shows in the step's outcome, which is scored like any other. A part is swapped in if only it is on the backend, and
swapped out if only the other parts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...drift.verdict import worst_of
from ...errors import NotAvailable, NumdriftError, UsageError
from ...observers.partition.partition_journal import PARTITION, Part, PartitionRecord, read_partition
from ...records.codec import plain, read
from ...records.modes.mode_spec import ModeSpec
from ...records.results.culprit import PART, Culprit
from ...records.results.experiment import Experiment
from ...records.results.findings import PartCarrier, PartScores
from ...records.tools.partition_record import PartitionConfig, refuse_swaps
from ...runs.recorded_run import RecordedRun
from ...search import CARRIED, carriers
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_localizations import inputs_of
from ..evidence.pair_scores import score_of, spec_of
from ..evidence.result_file import read_result, write_result
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, begun_in
from .question import SEARCHED, Inquiry, QuestionAnswer, mode_culprit

FOUND = "found"
"""The word in place of a run's number, in the name of the file with the result of all runs."""


def check_parts(specs: Sequence[ModeSpec], plan: InvestigationRequest, *, nproc: int = 1) -> None:
    """Raise UsageError, before anything is started, for modes and options with which a bisection is impossible."""
    if plan.localize == "none":
        raise UsageError(
            "a bisection by partitions searches for a cause, but --localize none forbids that: leave out one of the two"
        )
    if nproc > 1:
        raise UsageError(
            f"a bisection by partitions needs a run of one process, but this run has {nproc}: leave out --nproc"
        )
    reference, *others = specs
    if reference.base != "cpu":
        raise UsageError(
            f"a bisection by partitions moves parts of the model to the CPU: the reference must be cpu, not {reference}"
        )
    for spec in others:
        if spec.base == "cpu":
            raise UsageError(
                f"mode {spec.name!r} has no backend to put parts of the model on: it runs on the CPU itself"
            )
        refuse_swaps(spec)


class ModelParts:
    """The question of which parts of the model carry the drift. It is asked only on request."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return plan.partition_bisect

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        for inquiry in inquiries:
            if inquiry.pair.verdict not in SEARCHED or inquiry.at is None:
                verdict = inquiry.pair.verdict or "undecided"
                laboratory.progress.say(f"{inquiry.pair.b}: {verdict}, so there is no step to bisect")
                continue
            try:
                scores = _PartitionedStep(laboratory, inquiry).scores()
            except NotAvailable as error:
                scores = PartScores(inquiry.step, reason=str(error))
            # The runs are numbered. The file beside them has a word in place of the number.
            path = EvidenceFolder.of(inquiry.evidence.a).path / f"{inquiry.experiment('parts', FOUND).name}.json"
            write_result(path, {"step": inquiry.step, "inputs": inputs_of(inquiry.evidence), **plain(scores)})

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        scores = parts_of(evidence)
        labels = evidence.a.manifest.label, evidence.b.manifest.label
        return QuestionAnswer(
            instead=list(part_culprits(scores, threshold)), sentences=part_sentences(scores, labels), parts=scores
        )


class _PartitionedStep:
    """The reference's step, executed again and again with different operators on the backend."""

    def __init__(self, laboratory: Laboratory, inquiry: Inquiry) -> None:
        self._laboratory = laboratory
        self._inquiry = inquiry
        self._runs = 0
        self._record = PartitionRecord()

    def scores(self) -> PartScores:
        """Score the step and its parts. If the whole model does not carry the drift, no part is searched for.

        Raises NotAvailable.
        """
        inquiry = self._inquiry
        own = _score(inquiry.evidence, inquiry.evidence.started, inquiry.step)
        # The first run has nothing on the backend, and shows which operators exist.
        [control] = self._scores_with([frozenset()])
        if own is None:
            raise self._lacks("the mode itself did not execute the step from the reference's state")
        if control >= CARRIED * own:
            raise self._lacks(
                "the step drifts even without the backend: "
                f"z {control:.3g} with the whole model on the CPU, {own:.3g} in the mode"
            )
        if not self._record.calls:
            raise self._lacks("; ".join(self._record.notes) or "the step called no model")
        searched = carriers(sorted(self._record.calls), self._scores_with, inquiry.threshold, CARRIED * own)
        # Use the last run: every run records the same operators.
        calls = self._record.calls
        rows = (row for graph in self._record.graphs for row in graph.operators if not row.supported)
        return PartScores(
            step=inquiry.step,
            backend=self._record.backend,
            score=own,
            whole=searched.whole,
            asked=searched.count,
            left_out=list(dict.fromkeys(row.kind for row in rows)),
            carriers=[
                PartCarrier([calls[part] for part in carrier.parts], carrier.alone, carrier.without)
                for carrier in searched.carriers
            ],
        )

    def _scores_with(self, sets: Sequence[frozenset[Part]]) -> list[float]:
        """Return the step's score for each set of parts, with only that set on the backend. Raises NotAvailable."""
        a, b, step = self._inquiry.evidence.a, self._inquiry.evidence.b, self._inquiry.step
        experiments = [self._inquiry.experiment("parts", str(self._runs + number)) for number in range(len(sets))]
        self._runs += len(sets)
        mode, config = spec_of(b).to_json(), PartitionConfig().to_json()
        plans = []
        for experiment, only in zip(experiments, sets, strict=True):
            options = {"mode": mode, "config": config, "only": [list(part) for part in sorted(only)]}
            plans.append(begun_in(self._inquiry.states, a, experiment, [step], instruments={"partition": options}))
        sizes = " and ".join(str(len(parts)) for parts in sets)
        of = f" of {len(self._record.calls)}" if self._record.calls else ""
        title = f"bisection of step {step} of {b.manifest.label}: {sizes}{of} operators on its backend"
        self._laboratory.make(Round(title, plans))
        return [self._score_of(experiment) for experiment in experiments]

    def _score_of(self, experiment: Experiment) -> float:
        run = EvidenceFolder.of(self._inquiry.evidence.a).find(experiment)
        if run is None:
            raise self._lacks(f"{experiment.name} left no readable result")
        try:
            self._record = read_partition(run.path / PARTITION)
        except NumdriftError as error:
            raise self._lacks(str(error)) from error
        if self._record.failure:
            raise self._lacks(self._record.failure)
        score = _score(self._inquiry.evidence, [run], self._inquiry.step)
        if score is None:
            how = f"{run.manifest.status}, {run.manifest.message}" if run.manifest.failed else "no outcome"
            raise self._lacks(f"{run.path.name} did not finish the step: {how}")
        return score

    def _lacks(self, why: str) -> NotAvailable:
        return NotAvailable(f"a bisection of the model in step {self._inquiry.step}", why)


def _score(evidence: PairEvidence, runs: Sequence[RecordedRun], step: int) -> float | None:
    """Return the step's score in the first of the runs that finished it."""
    for run in runs:
        try:
            scored = score_of(evidence, run, step)
        except NumdriftError:
            continue
        if scored is not None:
            return worst_of([scored])
    return None


def parts_of(evidence: PairEvidence) -> PartScores | None:
    """Return the result of the pair's first bisected step; None if there is none."""

    def scores_in(content: dict[str, Any]) -> PartScores | None:
        return read(PartScores, content) if content.pop("inputs") == inputs_of(evidence) else None

    results = (read_result(path, scores_in) for path in evidence.bisected)
    return next((scores for scores in results if scores is not None), None)


def part_sentences(scores: PartScores | None, labels: Sequence[str]) -> list[str]:
    """Describe the bisection in sentences; `labels` are the reference's and the mode's."""
    if scores is None or scores.reason:
        return [scores.reason] if scores else []
    backend, left = scores.backend, scores.whole
    sentence = (
        f"step {scores.step} of {labels[0]} with the model's operators on {backend}: z {left:.3g}, compared with "
        f"{scores.score:.3g} in {labels[1]}"
    )
    if left >= CARRIED * scores.score:
        sentence += f" ({scores.asked} partitions)"
    else:
        cpu = f" (those stay on the CPU: {', '.join(scores.left_out)})" if scores.left_out else ""
        sentence += (
            f"; so no single one of these operators carries the drift: it comes from how {backend} executes them "
            f"together, from operators that it lacks{cpu}, or from outside the model, such as the optimizer"
        )
    sentences = [sentence]
    for carrier in scores.carriers:
        sentences.append(
            f"{_named(carrier)} carries the drift: with only this part on {backend}, z is {carrier.alone:.3g}; moving "
            f"it to the CPU takes z from {left:.3g} to {carrier.without:.3g}"
        )
        left = carrier.without
    return sentences


def _named(carrier: PartCarrier) -> str:
    """Name the operators of a carrier: `aten::tanh of net.1, train.py:12 with aten::sort`."""
    names = [
        f"{operator}{f' of {module}' if module else ''}{f', {line}' if line else ''}"
        for operator, line, module in carrier.operators
    ]
    return " with ".join(dict.fromkeys(names))


def part_culprits(scores: PartScores | None, threshold: float) -> Iterator[Culprit]:
    """Yield the parts that carry a drift beyond rounding, for a pair without any other cause."""
    if scores is None or scores.reason or scores.score <= threshold:
        return
    # The scores form a chain: each carrier is moved to the CPU in addition to the carriers before it.
    before = scores.whole
    for carrier in scores.carriers:
        if carrier.alone > threshold and carrier.without < before:
            ops = [operator.replace("::", ".") for operator, _, _ in carrier.operators]
            _, line, module = carrier.operators[0]
            yield mode_culprit(
                kind=PART,
                step=scores.step,
                name=_named(carrier),
                reasons=[f"its part of the model carries the drift on {scores.backend}"],
                before=before,
                after=carrier.without,
                threshold=threshold,
                why=f"alone on {scores.backend}: z {carrier.alone:.3g}; "
                f"with all other parts on {scores.backend}: z {carrier.without:.3g} instead of {before:.3g}",
                op=ops[0],
                source=line or None,
                module=module,
                ops={"a": [], "b": list(dict.fromkeys(ops))},
                places=list(dict.fromkeys(module for _, _, module in carrier.operators)),
                sites=len(carrier.operators),
            )
        before = carrier.without
