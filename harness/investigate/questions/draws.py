"""The first draw of random numbers that only one of two modes makes, and its line.

Journals record the states of the generators before each step. The step in which these states begin to differ is
recorded again in both modes, call by call and line by line, with the states before and after each draw. If a mode
compiles or has lazy graphs, the script is also recorded in a stand-in mode that does neither. If the states differ in
the stand-in, too, the script itself draws differently, and the line of the draw is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...drift.recorded_drift import GeneratorDifference, generator_differences
from ...drift.setup.draw_difference import DrawDifference, extra_draw
from ...errors import NumdriftError
from ...records.codec import plain, read_fields
from ...records.results.culprit import RECOMPUTED, SETUP, Culprit
from ...records.results.experiment import Experiment
from ...records.run.step_selection import StepSelection
from ...records.values.call_record import SETUP_PHASE, CallRecord
from ...runs.recorded_calls import read_calls
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_scores import spec_of
from ..evidence.result_file import read_result, write_result
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, repeating
from ..words.repetition_words import draw_sentence, shown_by_stand_in
from .question import Inquiry, QuestionAnswer
from .setting_axes import stand_in

ALONE = "-op-by-op"
"""The suffix of an experiment's name if a stand-in replaces the mode."""


class Draws:
    """The first draw that only one of the two modes makes from a generator."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        if inquiry.pair.verdict != "different-setup":
            return False
        return any(not _found_in(inquiry.evidence, difference).exists() for difference in _apart(inquiry))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        plans = {}
        for inquiry in inquiries:
            for difference in _apart(inquiry):
                for run in (inquiry.evidence.a, inquiry.evidence.b):
                    spec, step = spec_of(run), difference.drawn or 0
                    for mode, made in (
                        (spec, _experiment(run, difference)),
                        (stand_in(spec), _experiment(run, difference, ALONE)),
                    ):
                        if mode is not None and mode.capabilities.has_values:
                            plans[made] = repeating(run, made, spec=mode, calls=StepSelection.of([step]), until=step)
        laboratory.make(Round("the draw that only one mode makes", list(plans.values())))
        for inquiry in inquiries:
            for difference in _apart(inquiry):
                path, (draw, by_stand_in) = (
                    _found_in(inquiry.evidence, difference),
                    _compared(inquiry.evidence, difference),
                )
                write_result(path, {"draw": plain(draw), "stand_in": by_stand_in})

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        culprits = []
        a, b = evidence.a.manifest.label, evidence.b.manifest.label
        for difference in generator_differences(evidence.a, evidence.b):
            draw, by_stand_in = _read(_found_in(evidence, difference))
            if draw is not None:
                call = draw.call
                text = draw_sentence(draw, difference.generator, a, b)
                if by_stand_in:
                    text += shown_by_stand_in(b if stand_in(spec_of(evidence.b)) else a)
                culprits.append(
                    Culprit(
                        kind=SETUP,
                        phase=call.phase,
                        module=call.module,
                        op=call.name or None,
                        source=call.line or None,
                        step=draw.step,
                        what="generator",
                        name=difference.generator,
                        text=text,
                        significance="beyond-rounding",
                        local_rule=RECOMPUTED if draw.forward is not None else None,
                    )
                )
        return QuestionAnswer(culprits, sentences=[str(culprit.text) for culprit in culprits])


def _apart(inquiry: Inquiry) -> Iterator[GeneratorDifference]:
    """Yield the generators whose different draws can matter: in a later step, or in a batch that differs."""
    a, b = inquiry.evidence.a, inquiry.evidence.b
    if not (a.manifest.is_one_process and b.manifest.is_one_process):
        return
    batches = {culprit.step for culprit in inquiry.pair.culprits if culprit.kind == SETUP and culprit.what == "batch"}
    for difference in generator_differences(a, b):
        if difference.used or (difference.drawn is not None and difference.drawn in batches):
            yield difference


def _experiment(run: RecordedRun, difference: GeneratorDifference, how: str = "") -> Experiment:
    step = "setup" if difference.drawn is None else str(difference.drawn)
    return Experiment("calls", run.path.name, detail=f"step-{step}{how}")


def _found_in(evidence: PairEvidence, difference: GeneratorDifference) -> Path:
    """Return the path of the result file, beside the runs."""
    name = f"{_experiment(evidence.b, difference).name}-{difference.generator}-{evidence.a.path.name}.json"
    return EvidenceFolder.of(evidence.a).path / name


def _compared(evidence: PairEvidence, difference: GeneratorDifference) -> tuple[DrawDifference | None, bool]:
    """Return the first draw that the runs do not share, and whether a stand-in showed it."""
    folder = EvidenceFolder.of(evidence.a)
    own = [folder.find(_experiment(run, difference)) for run in (evidence.a, evidence.b)]
    alone = [folder.find(_experiment(run, difference, ALONE)) for run in (evidence.a, evidence.b)]
    standing = [instead or itself for instead, itself in zip(alone, own, strict=True)]
    for runs in (standing, own) if any(alone) else (own,):
        try:
            reference_calls, mode_calls = ([] if run is None else _calls_of(run, difference) for run in runs)
        except NumdriftError:
            continue
        draw = extra_draw(reference_calls, mode_calls, difference.generator) if reference_calls and mode_calls else None
        if draw is not None:
            return draw, runs is standing and any(alone)
    return None, False


def _calls_of(run: RecordedRun, difference: GeneratorDifference) -> list[CallRecord]:
    """Return the calls of the step in which the runs drew differently, or those before the first step.

    The list is empty for a run that was cut short: it may lack a draw only because the draw would have come later.
    """
    if not run.manifest.got_through:
        return []
    is_setup = difference.drawn is None
    return [
        call
        for step, calls in read_calls(run)
        for call in calls
        if (call.phase == SETUP_PHASE) == is_setup and (is_setup or step == difference.drawn)
    ]


def _read(path: Path) -> tuple[DrawDifference | None, bool]:
    def draw_in(content: dict[str, Any]) -> tuple[DrawDifference, bool] | None:
        draw = content["draw"]
        return None if draw is None else (read_fields(DrawDifference, draw), bool(content["stand_in"]))

    return read_result(path, draw_in) or (None, False)
