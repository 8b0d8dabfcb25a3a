"""Where two modes draw other random numbers: the draw that one of them makes alone, and its line.

Journals hold the states of the generators before each step. The step in which they come apart is recorded once more in
both modes, call by call and line by line, with the states before and after each draw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..drift.draw_difference import DrawDifference, extra_draw
from ..drift.recorded_drift import GeneratorDifference, generator_differences
from ..errors import NumdriftError
from ..records.call_record import SETUP_PHASE, TORCH, CallRecord
from ..records.codec import json_text, plain, read_fields
from ..records.culprit import SETUP, Culprit
from ..records.experiment import Experiment
from ..records.step_selection import StepSelection
from ..runs.recorded_calls import read_calls
from ..runs.recorded_run import RecordedRun
from .evidence import EvidenceFolder, PairEvidence
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Round, repeating
from .pair_scores import spec_of
from .question import Inquiry, QuestionAnswer
from .repetition_words import draw_sentence, without_values

SCHEMA = 1


class Draws:
    """The first draw from a generator that two modes do not have in common."""

    def asks(self, inquiry: Inquiry, plan: InvestigationPlan) -> bool:
        if inquiry.pair.verdict != "different-setup":
            return False
        return any(not _found_in(inquiry.evidence, one).exists() for one in _apart(inquiry.evidence))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationPlan) -> None:
        plans = {}
        for inquiry in inquiries:
            for one in _apart(inquiry.evidence):
                for run in (inquiry.evidence.a, inquiry.evidence.b):
                    made, step = _experiment(run, one), one.drawn or 0
                    plans[made] = repeating(run, made, calls=StepSelection.of([step]), until=step)
        laboratory.make(Round("which draw is one mode's alone", list(plans.values())))
        for inquiry in inquiries:
            for one in _apart(inquiry.evidence):
                path = _found_in(inquiry.evidence, one)
                if path.parent.is_dir():
                    content = {"schema": SCHEMA, "draw": plain(_compared(inquiry.evidence, one))}
                    path.write_text(json_text(content, indent=1), encoding="utf-8")

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        culprits = []
        a, b = evidence.a.manifest.label, evidence.b.manifest.label
        for one in _apart(evidence):
            found = _read(_found_in(evidence, one))
            if found is not None:
                call = found.call
                culprits.append(
                    Culprit(
                        kind=SETUP,
                        phase=call.phase,
                        module=call.module,
                        op=call.name or None,
                        source=call.line or None,
                        step=found.step,
                        what="generator",
                        name=one.generator,
                        text=draw_sentence(found, one.generator, a, b),
                        significance="beyond-rounding",
                    )
                )
        return QuestionAnswer(culprits, sentences=[str(one.text) for one in culprits])


def _apart(evidence: PairEvidence) -> Iterator[GeneratorDifference]:
    """The generators of which the modes draw other numbers, and of which both have their draws in their order."""
    a, b = evidence.a, evidence.b
    if any(run.manifest.world_size > 1 or run.manifest.in_process for run in (a, b)):
        return
    # what a lazy graph draws is drawn when the graph is executed, in another order
    lazy = any(spec_of(run).base in without_values() for run in (a, b))
    for one in generator_differences(a, b):
        if one.used and not (lazy and one.generator == TORCH):
            yield one


def _experiment(run: RecordedRun, one: GeneratorDifference) -> Experiment:
    return Experiment("calls", run.path.name, detail=f"step-{one.drawn if one.drawn is not None else 'setup'}")


def _found_in(evidence: PairEvidence, one: GeneratorDifference) -> Path:
    folder = EvidenceFolder.of(evidence.a).path / _experiment(evidence.b, one).name
    return folder / f"draws-{one.generator}-{evidence.a.path.name}.json"


def _compared(evidence: PairEvidence, one: GeneratorDifference) -> DrawDifference | None:
    folder = EvidenceFolder.of(evidence.a)
    runs = [folder.find(_experiment(run, one)) for run in (evidence.a, evidence.b)]
    try:
        ours, theirs = ([] if run is None else _calls_of(run, one) for run in runs)
    except NumdriftError:
        return None
    return extra_draw(ours, theirs, one.generator) if ours and theirs else None


def _calls_of(run: RecordedRun, one: GeneratorDifference) -> list[CallRecord]:
    """The calls of the step in which the generator was drawn from, or those before the first step."""
    is_setup = one.drawn is None
    return [
        call
        for step, calls in read_calls(run)
        for call in calls
        if (call.phase == SETUP_PHASE) == is_setup and (is_setup or step == one.drawn)
    ]


def _read(path: Path) -> DrawDifference | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = content["schema"] == SCHEMA and content["draw"] is not None
        return read_fields(DrawDifference, content["draw"]) if known else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
