"""The search for the call that a mode does not repeat: two more training runs, compared call by call.

A difference that arises by chance may appear at a different call in these runs, or not at all. So the calls of all
steps up to the one in which the control differed are recorded and compared. If the two runs are equal, a third one
is run. A stand-in for the mode, which executes the ops one by one, is also trained in two cases: the mode's ops have no
values when they are called, or the call that differs is a compiled graph or has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...drift.call_difference import CallDifference, first_difference
from ...drift.repetition import Repetition
from ...errors import JournalError, NumdriftError
from ...launch.batch_plan import BatchPlan
from ...records.codec import plain, read_fields
from ...records.results.culprit import NONDETERMINISM, Culprit
from ...records.results.experiment import Experiment
from ...records.run.step_selection import StepSelection
from ...records.values.call_record import GRAPH, CallRecord
from ...records.values.unfilled_read import UnfilledRead, read_unfilled
from ...runs.recorded_calls import read_calls
from ...runs.recorded_run import RecordedRun
from ..evidence.kept_repetition import controls_of
from ..evidence.mode_spreads import Spreads
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_scores import spec_of, spreads_of
from ..evidence.result_file import read_result, write_result
from ..evidence.taped_reads import reads_on_tapes
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, repeating
from ..experiments.rounds import control_of
from ..words.repetition_words import (
    remedy_of,
    sentence_of,
    shown_by_stand_in,
    unfilled_remedy,
    unfilled_sentence,
)
from .question import Inquiry, QuestionAnswer
from .setting_axes import stand_in

FOUND = "repetitions.json"
"""The suffix of the name of the result file, which is beside the training runs."""

STAND_IN = "op-by-op-"
"""A part of the names of the training runs of a mode's stand-in."""

TAPED = "taped-"
"""A part of the name of the training run that tapes the step as the core of lazy tensors executes it."""

MOST_TRAININGS = 3

MOST_STEPS, OF_THEM_FIRST = 128, 32
"""The largest number of steps whose calls are recorded, and how many of these are the first steps of the run."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The result of the runs of a mode, or of its stand-in (`by_stand_in`). `difference` is the first difference
    between two runs; None if they were equal."""

    steps: int
    trainings: int
    difference: CallDifference | None = None
    reason: str = ""
    by_stand_in: bool = False


class Repetitions:
    """The first call that differs between two training runs of a mode."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        if inquiry.pair.verdict != "nondeterministic":
            return False
        return any(
            repeated_of(run) is None and not unfilled
            for run, _, unfilled in unlike_runs(inquiry.evidence, inquiry.pair.threshold or 0.0)
        )

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        # Several pairs may share the reference, which is examined once.
        examined = {
            run.path: (run, control)
            for inquiry in inquiries
            for run, control, unfilled in unlike_runs(inquiry.evidence, inquiry.pair.threshold or 0.0)
            if not unfilled
        }
        waiting = [pair for pair in examined.values() if repeated_of(pair[0]) is None]
        waiting = _without_unfilled(laboratory, waiting)
        followed = [pair for pair in waiting if spec_of(pair[0]).capabilities.has_values]
        results = _tried(laboratory, followed, "")
        inside = [pair for pair in waiting if stand_in(spec_of(pair[0])) and _is_unclear(results.get(pair[0].path))]
        for path, seen in _tried(laboratory, inside, STAND_IN).items():
            if path not in results or seen.difference is not None:
                results[path] = replace(seen, by_stand_in=True)
        for run, _ in waiting:
            reason = "the ops of this mode have no values when they are called"
            write_result(_found_in(run), plain(results.get(run.path, Repeated(0, 0, reason=reason))))

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        culprits, sentences = list[Culprit](), list[str]()
        unlike = list(unlike_runs(evidence, threshold))
        for run, control, unfilled in unlike:
            if unfilled:
                culprits.append(unfilled_culprit(run, unfilled[0]))
                sentences.append(f"{control.text}; remedy: {unfilled_remedy(unfilled[0])}")
                continue
            repeated = repeated_of(run)
            if repeated is None:
                continue
            difference = repeated.difference
            if difference is not None and difference.what != "earlier":
                by = shown_by_stand_in(run.manifest.label) if repeated.by_stand_in else ""
                culprits.append(
                    nondeterminism(run, difference.call, difference.what, difference.step, sentence_of(difference) + by)
                )
                sentences.append(f"{control.text}; remedy: {remedy_of(difference, spec_of(run))}")
            else:
                sentences.append(_sentence_without_call(run, repeated, control, difference))
        return QuestionAnswer(culprits, sentences=sentences)


def unlike_runs(
    evidence: PairEvidence, threshold: float
) -> Iterator[tuple[RecordedRun, Repetition, list[UnfilledRead]]]:
    """Yield the one-process runs of a pair that their controls do not repeat, unless their spread counts as noise.

    Each comes with its control and with the reads of uninitialized memory in its taped step.
    """
    differing = {
        side: (run, control)
        for side, (run, _, control) in controls_of(evidence).items()
        # If a script ends after a certain time, its number of steps varies, and no call is to blame.
        if run.manifest.is_one_process and not control.repeatable and control.what != "steps"
    }
    spreads: Spreads = {}
    if differing:
        with suppress(JournalError):  # if the evidence is damaged, no spread is known
            spreads = spreads_of(evidence)
    for side, (run, control) in differing.items():
        spread = spreads.get(side)
        if spread is None or not replace(control, score=spread.spread.score).is_noise(threshold):
            yield run, control, _unfilled_of(run)


def _unfilled_of(run: RecordedRun) -> list[UnfilledRead]:
    """Return the reads of uninitialized memory in the step that was taped for them, or on the tapes of the control."""
    folder = EvidenceFolder.of(run)
    taped = folder.find(_experiment(run, 0, TAPED))
    again = folder.find(control_of(run))
    return [*(read_unfilled(taped.path) if taped else ()), *(reads_on_tapes(again) if again else ())]


def _without_unfilled(
    laboratory: Laboratory, waiting: Sequence[tuple[RecordedRun, Repetition]]
) -> list[tuple[RecordedRun, Repetition]]:
    """Tape the step that does not repeat, in modes of lazy tensors. Return the runs that have no taped read of
    uninitialized memory, with their controls."""
    lazy = [(run, control) for run, control in waiting if not spec_of(run).capabilities.tapes_itself]
    plans = []
    for run, control in lazy:
        steps = StepSelection.of([control.step or 0])
        taped = {"tapes": steps, "until": control.step or 0, "noise_replays": 0}
        plans.append(repeating(run, _experiment(run, 0, TAPED), **taped))
    if plans:
        labels = " and ".join(run.manifest.label for run, _ in lazy)
        laboratory.make(Round(f"the ops of {labels} in the step that does not repeat", plans))
    return [pair for pair in waiting if not _unfilled_of(pair[0])]


def recorded_steps(last: int) -> list[int]:
    """Return the steps up to `last` whose calls are recorded: all of them, or the first and the last ones."""
    if last < MOST_STEPS:
        return list(range(last + 1))
    return [*range(OF_THEM_FIRST), *range(last + 1 - (MOST_STEPS - OF_THEM_FIRST), last + 1)]


def _tried(laboratory: Laboratory, waiting: Sequence[tuple[RecordedRun, Repetition]], how: str) -> dict[Path, Repeated]:
    """Train these modes, or their stand-ins, until two runs differ, at most MOST_TRAININGS times."""
    results = dict[Path, Repeated]()
    for count in range(2, MOST_TRAININGS + 1):
        if not waiting:
            break
        # Train twice at first and, if both runs are equal, once more.
        numbers = range(count) if count == 2 else (count - 1,)
        plans = [_recorded(run, number, control, how) for run, control in waiting for number in numbers]
        labels = " and ".join(run.manifest.label for run, _ in waiting)
        by = ", op by op" if how else ""
        title = f"{labels} again{by}, to see which call does not repeat"
        laboratory.make(Round(title if count == 2 else f"{title}: the first two runs were equal", plans))
        results |= {run.path: _compared(run, count, control, how) for run, control in waiting}
        waiting = [pair for pair in waiting if not (results[pair[0].path].difference or results[pair[0].path].reason)]
    return results


def _experiment(run: RecordedRun, number: int, how: str) -> Experiment:
    return Experiment("calls", run.path.name, detail=f"{how}{number}")


def _recorded(run: RecordedRun, number: int, control: Repetition, how: str) -> BatchPlan:
    last, spec = control.step or 0, spec_of(run)
    mode = (stand_in(spec) or spec) if how else spec
    steps = StepSelection.of(recorded_steps(last))
    return repeating(run, _experiment(run, number, how), spec=mode, calls=steps, until=last)


def _compared(run: RecordedRun, trainings: int, control: Repetition, how: str) -> Repeated:
    """Compare the last of `trainings` training runs with the first."""
    folder, steps = EvidenceFolder.of(run), len(recorded_steps(control.step or 0))
    first, last = (folder.find(_experiment(run, number, how)) for number in (0, trainings - 1))
    unfinished = Repeated(steps, trainings, reason="a training run that recorded its calls did not finish")
    if first is None or last is None or not (first.journal.steps and last.journal.steps):
        return unfinished
    try:
        difference = first_difference(read_calls(first), read_calls(last))
    except NumdriftError as error:
        return Repeated(steps, trainings, reason=str(error))
    # The calls of a run that was cut short end early, which is neither a difference nor an agreement.
    at_an_end = difference is None or difference.a is None or difference.b is None
    if at_an_end and not (first.manifest.got_through and last.manifest.got_through):
        return unfinished
    return Repeated(steps, trainings, difference)


def _is_unclear(repeated: Repeated | None) -> bool:
    """Check whether the mode's calls were not recorded, or the call that differs has no line or is a compiled graph."""
    if repeated is None:
        return True
    difference = repeated.difference
    return difference is not None and (not difference.call.line or difference.call.op.startswith(GRAPH))


def _found_in(run: RecordedRun) -> Path:
    return EvidenceFolder.of(run).path / f"{_experiment(run, 0, '').name}-{FOUND}"


def repeated_of(run: RecordedRun) -> Repeated | None:
    """Return the result for a mode that does not repeat; None if its training runs were not compared."""
    return read_result(_found_in(run), lambda content: read_fields(Repeated, content))


def nondeterminism(run: RecordedRun, call: CallRecord, what: str, step: int, text: str) -> Culprit:
    return Culprit(
        kind=NONDETERMINISM,
        status="culprit",
        phase=call.phase,
        module=call.module,
        op=call.name or None,
        source=call.line or None,
        step=step,
        what=what,
        name=run.manifest.label,
        text=text,
        significance="beyond-rounding",
    )


def unfilled_culprit(run: RecordedRun, unfilled_read: UnfilledRead) -> Culprit:
    return nondeterminism(
        run, unfilled_read.call, "unfilled", unfilled_read.call.step, unfilled_sentence(unfilled_read)
    )


def _sentence_without_call(
    run: RecordedRun, repeated: Repeated, control: Repetition, difference: CallDifference | None
) -> str:
    """Say why the call that does not repeat is not named."""
    label = run.manifest.label
    if repeated.reason:
        return f"{label}: it is not known which call does not repeat: {repeated.reason}"
    if difference is not None:
        return (
            f"{label}: in step {difference.step} the state left by an earlier step differs, but the calls of only "
            f"{repeated.steps} steps were recorded: the call that does not repeat is in none of these"
        )
    if repeated.by_stand_in:
        return (
            f"{label}: its ops have no values when they are called. Executed one by one on the CPU, they repeat bit "
            "for bit, so it is not known which of them does not repeat in this mode"
        )
    return (
        f"{label}: {repeated.trainings} more training runs computed the same bits in every call up to step "
        f"{control.step or 0}, so the cause did not appear again"
    )
