"""The judgement of recorded runs: the verdict of each pair, the sentences about it, and its culprits. Nothing is run
here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TypeVar

from ...drift.calibration import threshold_of_pair
from ...drift.global_batch import whole_batch_compared
from ...drift.nonfinite import nonfinite
from ...drift.recorded_drift import Repetition, repetition
from ...drift.referee_accuracy import Accuracy
from ...drift.run_comparison import RunComparison, compare_runs
from ...drift.setup.met_in_files import met_in_files
from ...drift.setup.setup_triage import environment_differences, setup_differences
from ...drift.setup.step_setup import made_by_the_training, rounded_arguments
from ...drift.setup_difference import SetupDifference
from ...drift.step_score import StepScore
from ...drift.verdict import VerdictEvidence, decide
from ...errors import JournalError
from ...records.results.culprit import MARK_STEP, SETUP, Culprit
from ...records.results.findings import Findings, PairFindings, RunEnding, StepFindings, Verdict
from ...records.results.localization_record import Localization
from ...records.run.step_files import STATE
from ...runs.mapped_tensors import TensorFile
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import read_state, state_steps
from ..evidence.ended_by_values import ended_by_values, length_in_words
from ..evidence.pair_evidence import PairEvidence, evidence_for
from ..evidence.pair_scores import Scores, accuracy_of, scores_of, spec_of, with_explanations
from ..experiments.investigation_plan import remedy_of_draws
from ..questions.ops import localizations
from ..questions.question import proven
from ..questions.question_table import LAST_QUESTIONS, QUESTIONS
from ..questions.whole_trainings import Curves, curves_of, trained_without
from .completeness import accounted
from .judged_ranks import judged_by_rank
from .lacking_experiments import command_for
from .two_interpreters import interpreters_of, told_by_training, with_versions
from .verdict_of_causes import in_order, of_significant_steps, with_causes, with_place

Kind = TypeVar("Kind")

OF_ONE_RANK = ("initial", "generator", "batch")
"""Kinds of set-up differences that mean nothing between one rank and a process that has the whole batch."""

ENDED = {
    "crashed": "crashed",
    "killed": "was killed",
    "timeout": "ran out of time",
    "out-of-memory": "ran out of memory",
}


def judge(runs: Sequence[RecordedRun], step: int | None = None) -> Findings:
    """Judge every run against the first, the reference, with the evidence beside it.

    Localizations of `step` are reported before those of other steps.
    """
    return judge_pairs([(runs[0], run) for run in runs[1:]], step)


def judge_pairs(pairs: Sequence[tuple[RecordedRun, RecordedRun]], step: int | None = None) -> Findings:
    """Judge pairs, each with its own reference. In the findings, the first pair's reference represents all of them."""
    reference = pairs[0][0]
    runs = {run.path: run for pair in pairs for run in pair}
    return Findings(
        reproducer=reference.manifest.reproducer,
        reference=reference.manifest.label,
        runs={run.manifest.label: _ending(run) for run in runs.values()},
        pairs=[judge_pair(evidence_for(a, b), comparisons=len(pairs), step=step) for a, b in pairs],
    )


def _ending(run: RecordedRun) -> RunEnding:
    manifest = run.manifest
    return RunEnding(
        manifest.status, len(run.journal.steps), manifest.seconds, manifest.message, manifest.spec, run.path.name
    )


def judge_pair(evidence: PairEvidence, comparisons: int = 1, step: int | None = None) -> PairFindings:
    """Judge one pair, rank by rank where its runs have several."""
    return judged_by_rank(evidence, lambda of_rank: _judge_process(of_rank, comparisons, step))


def _judge_process(evidence: PairEvidence, comparisons: int, step: int | None) -> PairFindings:
    """Judge one process against another. Evidence that cannot be read is named in the notes, and the rest is used."""
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    failed, interpreters = _failed(evidence), interpreters_of(evidence.a, evidence.b)
    if failed and not (evidence.a.journal.steps and evidence.b.journal.steps):
        text = f"failed: {'; '.join(failed)}"
        return PairFindings(a=a, b=b, verdict="failed", text=[text], interpreters=interpreters)
    weighed = _weigh(evidence, failed)
    compared, scores = weighed.compared, weighed.scores
    fault, curves = scores.threshold.fault, curves_of(evidence, comparisons)

    questions = {**QUESTIONS, **LAST_QUESTIONS}
    answers = {name: question.answer(evidence, fault, step) for name, question in questions.items()}
    culprits = in_order([culprit for answer in answers.values() for culprit in answer.culprits])
    verdict = with_causes(weighed.verdict, culprits, a, b)
    culprits = of_significant_steps(verdict, culprits)
    # A stage, a setting or a part of the model is named only where no op is proven.
    if verdict.word == "beyond-rounding" and not proven(verdict.word, culprits):
        first = verdict.first_significant_step
        for answer in answers.values():
            later = [
                culprit for culprit in answer.instead if first is None or culprit.step is None or culprit.step >= first
            ]
            culprits = [*later, *culprits]
    without = trained_without(evidence, verdict.word, culprits)
    interpreters = told_by_training(interpreters, without)
    culprits = with_versions(culprits, interpreters)
    causes = (
        [difference for difference in weighed.setup if difference.counts] if verdict.word == "different-setup" else []
    )
    verdict = with_place(verdict, causes, culprits)

    around = [] if interpreters is None else [interpreters.sentence(a, b)]
    listed = () if interpreters is None else interpreters.differences
    around += [difference for difference in environment_differences(evidence.a, evidence.b) if difference not in listed]
    note_groups = (verdict.notes, compared.notes, around, scores.notes)
    notes = [*chain(*note_groups), *scores.unreplayed, *weighed.unreadable]
    notes += [note for answer in answers.values() for note in answer.notes]
    if verdict.word == "failed":  # "compile is crashed: REASON" repeats the verdict
        failed = [f": {run.manifest.message}" for run in _runs(evidence).values() if run.manifest.message]
        notes = [note for note in notes if not any(note.endswith(why) and why in verdict.text for why in failed)]
    explained, unexplained = None, ""
    if not compared.identical:
        explained, unexplained = accounted(evidence, verdict, scores, weighed.localized, culprits)
    referee = weighed.referee
    sentences = [sentence for answer in answers.values() for sentence in answer.sentences]
    met = met_in_files({name: run.manifest for name, run in _runs(evidence).items()})
    return PairFindings(
        a=a,
        b=b,
        verdict=verdict.word,
        text=[*_sentences(weighed, verdict, causes, curves), *met, *sentences],
        undecided=verdict.undecided,
        inspect=verdict.inspect,
        first_differing_step=compared.first_differing_step,
        first_significant_step=verdict.first_significant_step,
        score=verdict.score,
        threshold=fault,
        calibrated=scores.threshold.calibrated,
        closer_to_fp64={"a": a, "b": b}.get(referee.closer, referee.closer) if referee else None,
        referee=asdict(referee) if referee else None,
        culprits=[*_not_located(map(_of_setup, causes), culprits), *culprits],
        explained=explained,
        unexplained=unexplained,
        controls={label: asdict(control) for label, control in weighed.controls.items()},
        noise=scores.noise,
        steps=[*map(_of_step, scores.steps)],
        losses=asdict(compared.losses),
        runs_used=evidence.runs,
        tests=sum(int(localization.content.get("tests", 0)) for localization in weighed.localized),
        curve=curves.envelope.to_json() if curves.envelope else None,
        lag=asdict(curves.lag) if curves.lag else None,
        compiler=answers["compiler"].facts,
        parts=answers["parts"].facts,
        interpreters=interpreters,
        without=without,
        notes=list(dict.fromkeys(notes)),
    )


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The evidence of a pair, weighed measure by measure, and the verdict that follows from its scores."""

    compared: RunComparison
    setup: Sequence[SetupDifference]
    localized: Sequence[Localization]
    scores: Scores
    controls: Mapping[str, Repetition]
    verdict: Verdict
    referee: Accuracy | None
    unreadable: Sequence[str]
    length: str


def _weigh(evidence: PairEvidence, failed: Sequence[str]) -> _Weighed:
    a, b = evidence.a, evidence.b
    unreadable: list[str] = []
    several = evidence.one_against_several
    compared = whole_batch_compared(a, b) if several else compare_runs(a, b)
    states = (_first_state(a, evidence.a_again), _first_state(b, evidence.b_again))
    own, rounded = made_by_the_training(b, evidence.forced), rounded_arguments(evidence.forced)
    setup = setup_differences(a, b, *states, from_the_model=own, rounded=rounded)
    if several:
        setup = [difference for difference in setup if difference.kind not in OF_ONE_RANK]
    by_values = ended_by_values(a, b, evidence.forced)
    if by_values:
        setup = [difference for difference in setup if difference.kind != "steps"]
    localized = localizations(evidence)
    if any(
        localization.is_drawn_again or any(culprit.kind == MARK_STEP for culprit in localization.culprits)
        for localization in localized
    ):
        # The generators differ because the mode executed draws again.
        setup = [difference for difference in setup if difference.kind != "generator"]
    empty = Scores((), threshold_of_pair(spec_of(a), spec_of(b)), "", (), "its experiments cannot be read")
    scores = with_explanations(_readable(lambda: scores_of(evidence), empty, unreadable), localized)
    repeated = ((a, evidence.a_again), (b, evidence.b_again))
    controls = {run.manifest.label: repetition(run, again) for run, again in repeated if again is not None}
    label = b.manifest.label
    if by_values and label in controls and controls[label].what == "steps":
        # The control has the reference's length because it began its last step in the reference's state.
        controls[label] = Repetition(True, text=f"{label} repeats bit for bit up to its last common step")
    # The repetition reports why no step can start from a state when it fails to keep one.
    lacking = f"{STATE} is not available: "
    notices = () if evidence.a_again is None else evidence.a_again.manifest.notices
    why = next((notice.partition(lacking)[2] for notice in notices if lacking in notice), "")
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
            stateless=f"no step of this script can be started from another run's state: {why}" if why else "",
            command=command_for(a, b),
            common_steps=compared.common_steps if compared.cut_short else None,
            drawing=remedy_of_draws([spec_of(a), spec_of(b)]),
        )
    )
    alike = compared.identical or several
    referee = None if alike else _readable(lambda: accuracy_of(evidence), None, unreadable)
    length = length_in_words(a, b) if by_values else ""
    return _Weighed(compared, setup, localized, scores, controls, verdict, referee, unreadable, length)


def _runs(evidence: PairEvidence) -> dict[str, RecordedRun]:
    """Return the modes' own runs and the experiments that the verdict needs, by their names in sentences."""
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    runs = {
        a: evidence.a,
        b: evidence.b,
        f"the repetition of {a}": evidence.a_again,
        f"the repetition of {b}": evidence.only("b", "again"),
        f"the second training of {b}": evidence.forced,
    }
    return {name: run for name, run in runs.items() if run is not None}


def _failed(evidence: PairEvidence) -> list[str]:
    """Name the runs that did not get through: a mode's own run, else an experiment that the verdict needs."""
    failures = [
        f"{name} {ENDED.get(run.manifest.status, run.manifest.status)} after {len(run.journal.steps)} steps: "
        f"{run.manifest.message}"
        for name, run in _runs(evidence).items()
        if run.manifest.failed and run.manifest.status != "nonfinite"
    ]
    return failures[:1]


def _first_state(*runs: RecordedRun | None) -> TensorFile | None:
    for run in runs:
        if run is not None and 0 in state_steps(run.path):
            with suppress(JournalError):
                return read_state(run.path, 0)
    return None


def _readable(read: Callable[[], Kind], otherwise: Kind, unreadable: list[str]) -> Kind:
    try:
        return read()
    except JournalError as error:
        unreadable.append(str(error))
        return otherwise


def _sentences(weighed: _Weighed, verdict: Verdict, causes: Sequence[SetupDifference], curves: Curves) -> list[str]:
    word, losses, referee = verdict.word, weighed.compared.losses, weighed.referee
    sentences = [verdict.text, weighed.length, *(difference.text for difference in causes[1:])]
    reports_losses = word != "nonfinite" and not weighed.compared.identical and losses.max_relative is not None
    if reports_losses and losses.common_steps and losses.first_differing_step is None:
        sentences.append("the losses are the same bits at every step")
    elif reports_losses and losses.common_steps:
        sentences.append(
            f"the losses differ from step {losses.first_differing_step} on, by at most {losses.max_relative:.2g} of "
            f"their value (step {losses.max_relative_step})"
            + ("; that alone says nothing, as training magnifies rounding" if word in ("rounding", None) else "")
        )
    # The referee computes the reference's own ops, so it says nothing about a mode that computes something else.
    if referee is not None and referee.text and word not in ("different-setup", "nonfinite", "nondeterministic"):
        doubt = "; where the modes compute different things, that does not say which of them is right"
        sentences.append(referee.text + (doubt if word == "beyond-rounding" else ""))
    return [sentence for sentence in (*sentences, *curves.sentences) if sentence]


def _of_setup(difference: SetupDifference) -> Culprit:
    return Culprit(
        kind=SETUP,
        phase="setup",
        step=difference.step,
        what=difference.kind,
        name=difference.name,
        text=difference.text,
        significance="beyond-rounding",
    )


def _not_located(causes: Iterable[Culprit], culprits: Sequence[Culprit]) -> list[Culprit]:
    """Return the differences in the set-up whose call is unknown; a culprit with a known call replaces the others."""
    located = {(culprit.kind, culprit.what, culprit.name) for culprit in culprits}
    return [cause for cause in causes if (cause.kind, cause.what, cause.name) not in located]


def _of_step(step_score: StepScore) -> StepFindings:
    differing = [tensor for tensor in step_score.tensors if tensor.score]  # only a few of thousands of values differ
    return StepFindings(
        step_score.step,
        step_score.score,
        step_score.tensor,
        step_score.taped,
        step_score.on_edge,
        step_score.discrete,
        "ill-conditioned" if step_score.ill_conditioned else "",
        len(step_score.tensors),
        differing,
    )
