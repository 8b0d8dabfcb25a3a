"""From what was recorded to what is known of each pair. Nothing is run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeVar

from ..drift.calibration import threshold_for
from ..drift.global_batch import whole_batch_compared
from ..drift.nonfinite import nonfinite
from ..drift.referee_accuracy import Accuracy
from ..drift.repetition import Repetition, repetition
from ..drift.run_comparison import RunComparison, compare_runs
from ..drift.setup_difference import SetupDifference
from ..drift.setup_triage import environment_differences, setup_differences
from ..drift.step_score import StepScore
from ..drift.verdict import Verdict, VerdictEvidence, decide
from ..errors import JournalError
from ..records.culprit import MARK_STEP, SETUP, Culprit
from ..records.findings import Findings, PairFindings
from ..records.localization_record import Localization
from ..records.step_files import STATE
from ..runs.mapped_tensors import TensorFile
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import read_state, state_steps
from .curves import Curves, curves_of
from .evidence import PairEvidence, evidence_for
from .judged_ranks import judged_by_rank
from .ops import localizations
from .pair_scores import Scores, accuracy_of, scores_of, spec_of, with_choices
from .question import proven
from .question_table import LAST_QUESTIONS, QUESTIONS
from .whole_outcomes import holds_one_against_several
from .without_culprits import trained_without

Kind = TypeVar("Kind")

OF_ONE_RANK = ("initial", "generator", "batch")
"""Kinds of set-up differences that tell nothing of a rank against a process that has the whole."""

ENDED = {
    "crashed": "crashed",
    "killed": "was killed",
    "timeout": "ran out of time",
    "out-of-memory": "ran out of memory",
}


def judge(runs: Sequence[RecordedRun], step: int | None = None) -> Findings:
    """Judge every run against the first, the reference, from the evidence that lies beside it.

    What was localized in `step` is told before what was localized in others.
    """
    return judge_pairs([(runs[0], run) for run in runs[1:]], step)


def judge_pairs(pairs: Sequence[tuple[RecordedRun, RecordedRun]], step: int | None = None) -> Findings:
    """Judge pairs, each with its own reference; the first one's is the reference of all in the findings."""
    reference = pairs[0][0]
    runs = {run.path: run for pair in pairs for run in pair}
    return Findings(
        reproducer=reference.manifest.reproducer,
        reference=reference.manifest.label,
        runs={run.manifest.label: described(run) for run in runs.values()},
        pairs=[judge_pair(evidence_for(a, b), comparisons=len(pairs), step=step) for a, b in pairs],
    )


def described(run: RecordedRun) -> dict[str, Any]:
    manifest = run.manifest
    return {
        "status": manifest.status,
        "steps": len(run.journal.steps),
        "seconds": manifest.seconds,
        "message": manifest.message,
        "spec": manifest.spec,
        "path": run.path.name,
    }


def judge_pair(evidence: PairEvidence, comparisons: int = 1, step: int | None = None) -> PairFindings:
    """Judge one pair, rank by rank where its runs have several."""
    return judged_by_rank(evidence, lambda of_rank: _judge_process(of_rank, comparisons, step))


def _judge_process(evidence: PairEvidence, comparisons: int, step: int | None) -> PairFindings:
    """Judge one process against another. What cannot be read is said in the notes, and the rest is used."""
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    failed = _failed(evidence)
    if failed and not (evidence.a.journal.steps and evidence.b.journal.steps):
        return PairFindings(a=a, b=b, verdict="failed", text=[f"failed: {'; '.join(failed)}"])
    weighed = _weigh(evidence, failed)
    verdict, compared, scores = weighed.verdict, weighed.compared, weighed.scores
    fault, curves = scores.threshold.fault, curves_of(evidence, comparisons)

    questions = {**QUESTIONS, **LAST_QUESTIONS}
    answers = {name: question.answer(evidence, fault, step) for name, question in questions.items()}
    culprits = [culprit for answer in answers.values() for culprit in answer.culprits]
    if verdict.word == "beyond-rounding" and not proven(verdict.word, culprits):
        for answer in answers.values():
            culprits = [*answer.instead, *culprits]
    causes = [one for one in weighed.setup if one.counts] if verdict.word == "different-setup" else []

    answered = [sentence for answer in answers.values() for sentence in answer.sentences]
    told = (verdict.notes, compared.notes, environment_differences(evidence.a, evidence.b), scores.notes)
    notes = [*chain(*told), *scores.unreplayed, *weighed.unreadable]
    notes += [note for answer in answers.values() for note in answer.notes]
    referee = weighed.referee
    return PairFindings(
        a=a,
        b=b,
        verdict=verdict.word,
        text=[*_sentences(weighed, causes, curves), *answered],
        undecided=verdict.undecided,
        inspect=verdict.inspect,
        first_differing_step=compared.first_differing_step,
        first_significant_step=verdict.first_significant_step,
        score=verdict.score,
        threshold=fault,
        calibrated=scores.threshold.calibrated,
        closer_to_fp64={"a": a, "b": b}.get(referee.closer, referee.closer) if referee else None,
        referee=asdict(referee) if referee else None,
        culprits=[*map(_culprit, causes), *culprits],
        controls={label: asdict(one) for label, one in weighed.controls.items()},
        noise=scores.noise,
        steps=[_step(one) for one in scores.steps],
        losses=asdict(compared.losses),
        runs_used=evidence.runs,
        tests=sum(int(one.content.get("tests", 0)) for one in weighed.localized),
        curve=curves.envelope.to_json() if curves.envelope else None,
        lag=asdict(curves.lag) if curves.lag else None,
        compiler=answers["compiler"].facts,
        parts=answers["parts"].facts,
        without=trained_without(evidence, verdict.word, culprits),
        notes=list(dict.fromkeys(notes)),
    )


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What the evidence of a pair says, measure by measure, and the verdict that follows."""

    compared: RunComparison
    setup: Sequence[SetupDifference]
    localized: Sequence[Localization]
    scores: Scores
    controls: Mapping[str, Repetition]
    verdict: Verdict
    referee: Accuracy | None
    unreadable: Sequence[str]


def _weigh(evidence: PairEvidence, failed: Sequence[str]) -> _Weighed:
    a, b = evidence.a, evidence.b
    unreadable: list[str] = []
    several = holds_one_against_several(evidence)
    compared = whole_batch_compared(a, b) if several else compare_runs(a, b)
    setup = setup_differences(a, b, _state(evidence.a_again), _state(evidence.b_again))
    if several:
        setup = [one for one in setup if one.kind not in OF_ONE_RANK]
    localized = localizations(evidence)
    if any(culprit.kind == MARK_STEP for one in localized for culprit in one.culprits):
        setup = [one for one in setup if one.kind != "generator"]  # the mode drew again what it had drawn
    empty = Scores((), threshold_for(spec_of(b)), "", (), "its experiments cannot be read")
    scores = with_choices(_readable(lambda: scores_of(evidence), empty, unreadable), localized)
    repeated = ((a, evidence.a_again), (b, evidence.b_again))
    controls = {run.manifest.label: repetition(run, again) for run, again in repeated if again is not None}
    verdict = decide(
        VerdictEvidence(
            a=a.manifest.label,
            b=b.manifest.label,
            threshold=scores.threshold,
            identical=compared.identical,
            first_differing_step=compared.first_differing_step,
            failed=tuple(failed),
            repetitions=tuple(controls.values()),
            setup=tuple(setup),
            nonfinite=nonfinite(a, b),
            steps=scores.steps,
            unscored=scores.why,
            stateless=_stateless(evidence),
            command=_command(evidence),
        )
    )
    alike = compared.identical or several
    referee = None if alike else _readable(lambda: accuracy_of(evidence), None, unreadable)
    return _Weighed(compared, setup, localized, scores, controls, verdict, referee, unreadable)


def _command(evidence: PairEvidence) -> str:
    """What makes the experiments that a pair lacks: for runs of one investigation, without running them
    again."""
    a, b = evidence.a, evidence.b
    if a.manifest.in_process or b.manifest.in_process:
        return "numdrift investigate SCRIPT"
    if a.path.parent != b.path.parent or a.manifest.suffix != b.manifest.suffix:
        return "numdrift investigate"
    suffix = f" --suffix {a.manifest.suffix}" if a.manifest.suffix else ""
    return f"numdrift investigate {a.path.parent}{suffix}"


def _failed(evidence: PairEvidence) -> list[str]:
    """What did not get through: a mode's own run, else an experiment that the verdict needs."""
    runs = [
        (evidence.a, evidence.a.manifest.label),
        (evidence.b, evidence.b.manifest.label),
        (evidence.a_again, f"the repetition of {evidence.a.manifest.label}"),
        (evidence.b_again, f"the repetition of {evidence.b.manifest.label}"),
        (evidence.forced, f"{evidence.b.manifest.label}, started from the reference's state,"),
    ]
    said = [
        f"{name} {ENDED.get(run.manifest.status, run.manifest.status)} after {len(run.journal.steps)} steps: "
        f"{run.manifest.message}"
        for run, name in runs
        if run is not None and run.manifest.failed and run.manifest.status != "nonfinite"
    ]
    return said[:1]


def _state(run: RecordedRun | None) -> TensorFile | None:
    if run is None or 0 not in state_steps(run.path):
        return None
    try:
        return read_state(run.path, 0)
    except JournalError:
        return None


def _readable(read: Callable[[], Kind], otherwise: Kind, unreadable: list[str]) -> Kind:
    try:
        return read()
    except JournalError as error:
        unreadable.append(str(error))
        return otherwise


def _sentences(weighed: _Weighed, causes: Sequence[SetupDifference], curves: Curves) -> list[str]:
    verdict, referee = weighed.verdict, weighed.referee
    said = [
        verdict.text,
        *(one.text for one in causes[1:]),
        _loss_sentence(weighed.compared, verdict),
        _referee_sentence(referee.text if referee else "", verdict),
        *curves.sentences,
    ]
    return [sentence for sentence in said if sentence]


def _loss_sentence(compared: RunComparison, verdict: Verdict) -> str:
    losses = compared.losses
    if verdict.word == "nonfinite":
        return ""
    if compared.identical or not losses.common_steps or losses.max_relative is None:
        return ""
    if losses.first_differing_step is None:
        return "the losses are the same bits at every step"
    return (
        f"the losses differ from step {losses.first_differing_step} on, by at most {losses.max_relative:.2g} of their "
        f"value (step {losses.max_relative_step})"
        + ("; that alone says nothing, as training magnifies rounding" if verdict.word in ("rounding", None) else "")
    )


def _referee_sentence(text: str, verdict: Verdict) -> str:
    """The referee computes the reference's own ops: it cannot speak for a mode that computes something
    else."""
    if verdict.word in ("different-setup", "nonfinite", "nondeterministic") or not text:
        return ""
    return text + (
        "; if the modes compute different things, that is only what it says"
        if verdict.word == "beyond-rounding"
        else ""
    )


def _culprit(cause: SetupDifference) -> Culprit:
    return Culprit(
        kind=SETUP,
        phase="setup",
        step=cause.step,
        what=cause.kind,
        name=cause.name,
        text=cause.text,
        significance="beyond-rounding",
    )


def _step(score: StepScore) -> dict[str, Any]:
    """A step's scores; of the tensors those that differ."""
    return {
        "step": score.step,
        "score": score.score,
        "tensor": score.tensor,
        "taped": score.taped,
        "on_edge": score.on_edge,
        "discrete": list(score.discrete),
        "compared": len(score.tensors),
        "tensors": [asdict(one) for one in score.tensors if one.score],
    }


def _stateless(evidence: PairEvidence) -> str:
    """Why no step of the script can be started from a state, "" where one can, or where that was not
    tried."""
    repeated = evidence.a_again
    told = () if repeated is None else repeated.manifest.notices
    lacking = f"{STATE} is not available: "
    why = next((one.partition(lacking)[2] for one in told if lacking in one), "")
    return f"no step of this script can be started from another run's state: {why}" if why else ""
