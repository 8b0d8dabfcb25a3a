"""Which part of a model carries a mode's drift: one step of the reference, with ever smaller parts of the
model on the backend.

Everything else is the reference's own process on the CPU: the loss function, the optimizer and the other
operators. So nothing of the backend is looked into; what it makes of an operator and of its gradient is seen
in the step's outcome, which is scored as always. A part is swapped in when it alone is on the backend, and
out when all others are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..drift.verdict import worst_of
from ..errors import NotAvailable, NumdriftError, UsageError
from ..observers.partition.partition_journal import PARTITION, PartitionRecord, read_partition
from ..observers.partition.partition_parts import Part, PartCall
from ..records.codec import json_text
from ..records.culprit import PART, Culprit
from ..records.experiment import Experiment
from ..records.mode_spec import ModeSpec
from ..records.partition_limits import PartitionConfig, refuse_swaps
from ..runs.recorded_run import RecordedRun
from ..search import CARRIED, Bisection, carriers
from .evidence import EvidenceFolder, PairEvidence
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Round, begun_in
from .ops import inputs_of
from .pair_scores import score_of, spec_of
from .question import SEARCHED, Inquiry, QuestionAnswer, mode_culprit

SCHEMA = 1
FOUND = "found"
"""What takes the number's place in the name of the file that has what came of all runs."""


def check_parts(specs: Sequence[ModeSpec], plan: InvestigationPlan, *, nproc: int = 1) -> None:
    """Find out what cannot be partitioned before anything is started. Raises UsageError."""
    if plan.localize == "none":
        raise UsageError(
            "a bisection by partitions looks for a cause, and none is to be looked for: leave one of both out"
        )
    if nproc > 1:
        raise UsageError("a bisection by partitions is of one process: leave --nproc out")
    reference, *others = specs
    if reference.base != "cpu":
        raise UsageError(
            f"a bisection by partitions moves parts of the model to the CPU: the reference has to be "
            f"cpu, not {reference}"
        )
    for spec in others:
        if spec.base == "cpu":
            raise UsageError(
                f"mode {spec.name!r} has no backend to put parts of the model on: it runs on the CPU itself"
            )
        refuse_swaps(spec)


class ModelParts:
    """Ever smaller parts of the model, on request."""

    def asks(self, inquiry: Inquiry, plan: InvestigationPlan) -> bool:
        return plan.partition_bisect

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationPlan) -> None:
        for one in inquiries:
            if one.pair.verdict in SEARCHED and one.at is not None:
                _bisect_model(laboratory, one)
            else:
                laboratory.progress.say(
                    f"{one.pair.b}: {one.pair.verdict or 'undecided'}, so there is no step to bisect"
                )

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        found = parts_of(evidence)
        labels = evidence.a.manifest.label, evidence.b.manifest.label
        return QuestionAnswer(
            instead=list(part_culprits(found, threshold)),
            sentences=part_sentences(found, labels),
            facts=found,
        )


def _bisect_model(laboratory: Laboratory, inquiry: Inquiry) -> None:
    """Bisect the model in this step, and leave what came of it beside the runs."""
    found: dict[str, Any] = {"schema": SCHEMA, "step": inquiry.step, "inputs": inputs_of(inquiry.evidence)}
    step = _PartitionedStep(laboratory, inquiry)
    try:
        found |= step.content(step.bisection(inquiry.threshold))
    except NotAvailable as error:
        found |= {"reason": str(error)}
    path = EvidenceFolder.of(inquiry.evidence.a).path / f"{inquiry.experiment('parts', FOUND).name}.json"
    path.write_text(json_text(found, indent=1), encoding="utf-8")


class _PartitionedStep:
    """The reference's step, taken again and again with other operators on the backend."""

    def __init__(self, laboratory: Laboratory, inquiry: Inquiry) -> None:
        self._laboratory = laboratory
        self._inquiry = inquiry
        self._runs = 0
        self._record = PartitionRecord()
        self._own = _score(inquiry.evidence, inquiry.evidence.started, inquiry.step)

    def bisection(self, threshold: float) -> Bisection[Part]:
        """Raises NotAvailable. Where the whole model does not carry the drift, no part is looked for."""
        return carriers(self._parts(), self._taken, threshold, CARRIED * (self._own or 0.0))

    def _parts(self) -> Sequence[Part]:
        """The model's operators that have a part of their own, with nothing on the backend. Raises
        NotAvailable."""
        [control] = self._taken([frozenset()])
        if self._own is None:
            raise self._lacks("the mode itself did not take the step from the reference's state")
        if control >= CARRIED * self._own:
            raise self._lacks(
                f"with the whole model on the CPU the step is at z {control:.3g} already, and at "
                f"{self._own:.3g} in the mode"
            )
        if not self._record.calls:
            raise self._lacks("; ".join(self._record.notes) or "no model was called in it")
        return sorted(self._record.calls)

    def content(self, found: Bisection[Part]) -> dict[str, Any]:
        calls = self._record.calls
        rows = (row for graph in self._record.graphs for row in graph.operators if not row.supported)
        return {
            "backend": self._record.backend,
            "score": self._own,
            "whole": found.whole,
            "asked": found.asked,
            "left_out": list(dict.fromkeys(row.kind for row in rows)),
            "carriers": [
                {
                    "operators": [list(calls[part]) for part in one.parts],
                    "alone": one.alone,
                    "without": one.without,
                }
                for one in found.carriers
            ],
        }

    def _taken(self, sets: Sequence[frozenset[Part]]) -> list[float]:
        """The scores of the step with only these parts on the backend. Raises NotAvailable."""
        b = self._inquiry.evidence.b
        made = [self._inquiry.experiment("parts", str(self._runs + number)) for number in range(len(sets))]
        self._runs += len(sets)
        sizes = " and ".join(str(len(one)) for one in sets)
        of = f" of {len(self._record.calls)}" if self._record.calls else ""
        title = f"step {self._inquiry.step} of {b.manifest.label} in parts: {sizes}{of} operators on its backend"
        plans = [self._run(one, only) for one, only in zip(made, sets, strict=True)]
        self._laboratory.make(Round(title, plans))
        return [self._score_of(one) for one in made]

    def _run(self, experiment: Experiment, only: frozenset[Part]) -> Any:
        a, b = self._inquiry.evidence.a, self._inquiry.evidence.b
        options = {
            "mode": spec_of(b).to_json(),
            "config": PartitionConfig().to_json(),
            "only": [list(part) for part in sorted(only)],
        }
        step = self._inquiry.step
        return begun_in(self._inquiry.states, a, experiment, [step], instruments={"partition": options})

    def _score_of(self, experiment: Experiment) -> float:
        run = EvidenceFolder.of(self._inquiry.evidence.a).find(experiment)
        if run is None:
            raise self._lacks(f"{experiment.name} left nothing that can be read")
        try:
            self._record = read_partition(run.path / PARTITION)
        except NumdriftError as error:
            raise self._lacks(str(error)) from error
        if self._record.failure:
            raise self._lacks(self._record.failure)
        score = _score(self._inquiry.evidence, [run], self._inquiry.step)
        if score is None:
            how = f"{run.manifest.status}, {run.manifest.message}" if run.manifest.failed else "no outcome"
            raise self._lacks(f"{run.path.name} did not get through the step: {how}")
        return score

    def _lacks(self, why: str) -> NotAvailable:
        return NotAvailable(f"a bisection of the model in step {self._inquiry.step}", why)


def _score(evidence: PairEvidence, runs: Sequence[RecordedRun], step: int) -> float | None:
    """The step's score in the first of the runs that took it."""
    for run in runs:
        try:
            scored = score_of(evidence, run, step)
        except NumdriftError:
            continue
        if scored is not None:
            return worst_of([scored])
    return None


def parts_of(evidence: PairEvidence) -> dict[str, Any] | None:
    """What the bisection of the pair's first step that was bisected says, None where none was: `step`,
    `score` as the mode is, and that of the `whole` model on the `backend`; `carriers` with their `operators`
    as (name, line, module), their scores `alone` on the backend and `without` them; `asked` counts the
    partitions. Only `step` and `reason` where there is no answer."""
    for path in evidence.bisected:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("schema") == SCHEMA and content.pop("inputs") == inputs_of(evidence):
                return _read(content)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return None


def _read(content: dict[str, Any]) -> dict[str, Any]:
    """Infinities are text in JSON."""
    if "reason" in content:
        return {"step": int(content["step"]), "reason": str(content["reason"])}
    carriers = [
        {
            "operators": [PartCall(*call) for call in one["operators"]],
            "alone": float(one["alone"]),
            "without": float(one["without"]),
        }
        for one in content["carriers"]
    ]
    return {
        "step": int(content["step"]),
        "backend": str(content["backend"]),
        "score": float(content["score"]),
        "whole": float(content["whole"]),
        "asked": int(content["asked"]),
        "left_out": [str(one) for one in content["left_out"]],
        "carriers": carriers,
    }


def part_sentences(found: Mapping[str, Any] | None, labels: Sequence[str]) -> list[str]:
    """The bisection in words; `labels` are the reference's and the mode's."""
    if found is None:
        return []
    if "reason" in found:
        return [str(found["reason"])]
    step, backend, whole = found["step"], found["backend"], found["whole"]
    first = (
        f"step {step} of {labels[0]} with the model's operators on {backend}: z {whole:.3g}, in {labels[1]} "
        f"{found['score']:.3g}{_outside(found)}"
    )
    said = [first]
    left = whole
    for one in found["carriers"]:
        said.append(
            f"{_named(one)} carries it: alone on {backend} z {one['alone']:.3g}; put on the CPU, z "
            f"goes from {left:.3g} to "
            f"{one['without']:.3g}"
        )
        left = one["without"]
    return said


def _outside(found: Mapping[str, Any]) -> str:
    if found["whole"] >= CARRIED * found["score"]:
        return f" ({found['asked']} partitions)"
    cpu = f" (those stay on the CPU: {', '.join(found['left_out'])})" if found["left_out"] else ""
    return (
        f"; so these operators do not carry the drift one by one: it comes with what "
        f"{found['backend']} makes of them together, "
        f"with operators that it does not have{cpu}, or from outside of the model, as the optimizer"
    )


def _named(carrier: Mapping[str, Any]) -> str:
    return " with ".join(dict.fromkeys(map(_call_named, carrier["operators"])))


def _call_named(call: PartCall) -> str:
    return f"{call.operator}{f' of {call.module}' if call.module else ''}{f', {call.line}' if call.line else ''}"


def part_culprits(found: Mapping[str, Any] | None, threshold: float) -> Iterator[Culprit]:
    """The parts that carry a drift beyond rounding, for where nothing else could be named."""
    if found is None or "reason" in found or found["score"] <= threshold:
        return
    before = found["whole"]
    for one in found["carriers"]:
        after = one["without"]
        came, went = one["alone"] > threshold, after < before
        if came and went:
            yield mode_culprit(
                kind=PART,
                step=found["step"],
                name=_named(one),
                reasons=[f"its part of the model carries the drift on {found['backend']}"],
                before=before,
                after=after,
                threshold=threshold,
                why=f"alone on {found['backend']} z {one['alone']:.3g}, all but it {after:.3g} instead of {before:.3g}",
                op=_op(one["operators"][0]),
                source=one["operators"][0].line or None,
                module=one["operators"][0].module,
                ops={"a": [], "b": list(dict.fromkeys(map(_op, one["operators"])))},
                places=list(dict.fromkeys(call.module for call in one["operators"])),
                sites=len(one["operators"]),
            )
        before = after


def _op(call: PartCall) -> str:
    return call.operator.replace("::", ".")
