"""The judgement of recorded runs: the verdict of each pair, the sentences about it, and its culprits. It runs nothing.

A pair is judged in this order:

    1  a run without any step, whether or not it failed    nothing is compared
    2  the measurements                                    `measured_pair`
    3  the verdict that follows from them                  `drift.verdict`, which states its order of precedence
    4  the causes that the questions have found, which     `verdict_of_causes`, whose RULES are in order of
       may change the verdict                              precedence
    5  the drift that the causes do not explain            `completeness`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from ...drift.run_comparison import reason_without_steps
from ...drift.setup.met_in_files import met_in_files
from ...drift.setup.setup_triage import environment_differences
from ...drift.setup_difference import SetupDifference
from ...drift.step_score import StepScore
from ...drift.verdict import decide, unless_contradicted
from ...records.modes.repeating_advice import repeating_advice
from ...records.results.culprit import SETUP, Culprit
from ...records.results.findings import Findings, PairFindings, RunEnding, StepFindings, TrainedWithout, Verdict
from ...records.run.interpreters import TwoInterpreters
from ...records.run.step_files import LEAVES_OUT
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_evidence import PairEvidence, evidence_for
from ..evidence.pair_scores import spec_of
from ..questions.question import QuestionAnswer, proven
from ..questions.question_table import LAST_QUESTIONS, QUESTIONS
from ..questions.whole_trainings import Curves, curves_of, trained_without
from ..words.repetition_words import hidden_sentence, recording_sentence, spread_sentence
from .completeness import accounted
from .judged_ranks import judged_by_rank
from .measured_pair import MeasuredPair, failure_of, measure, named_runs, verdict_evidence
from .two_interpreters import blamed_by_training, interpreters_of, with_versions
from .verdict_of_causes import in_order, of_significant_steps, supported, unless_redrawn, with_causes, with_place


def judge(runs: Sequence[RecordedRun], step: int | None = None) -> Findings:
    """Judge every run against the first, the reference, from the evidence beside the runs.

    Localizations of `step` are reported before those of other steps.
    """
    return judge_pairs([(runs[0], run) for run in runs[1:]], step)


def judge_pairs(pairs: Sequence[tuple[RecordedRun, RecordedRun]], step: int | None = None) -> Findings:
    """Judge pairs, each with its own reference. The findings name the first pair's reference as the reference."""
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
    """Judge one pair, rank by rank if its runs have several ranks."""
    return judged_by_rank(evidence, lambda of_rank: _judge_process(of_rank, comparisons, step))


def _judge_process(evidence: PairEvidence, comparisons: int, step: int | None) -> PairFindings:
    """Judge one process of each run."""
    failure = failure_of(evidence)
    if not (evidence.a.journal.steps and evidence.b.journal.steps):
        return _without_steps(evidence, failure)
    measured = measure(evidence)
    verdict = decide(verdict_evidence(evidence, measured, failure))
    judged = _with_causes(verdict, evidence, measured, step)
    curves = curves_of(evidence, comparisons)
    pair = PairFindings(
        a=evidence.a.manifest.label,
        b=evidence.b.manifest.label,
        verdict=judged.verdict.word,
        text=[
            *_sentences(measured, judged, curves),
            *met_in_files({name: run.manifest for name, run in named_runs(evidence).items()}),
            *(sentence for sentence in judged.answer.sentences if sentence not in judged.verdict.text),
        ],
        undecided=judged.verdict.undecided,
        inspect=judged.verdict.inspect,
        first_significant_step=judged.verdict.first_significant_step,
        score=judged.verdict.score,
        curve=curves.envelope.to_json() if curves.envelope else None,
        lag=asdict(curves.lag) if curves.lag else None,
        notes=_notes(evidence, measured, judged),
        runs_used=evidence.runs,
    )
    return _with_culprits(_with_measurements(pair, measured), evidence, measured, judged)


def _without_steps(evidence: PairEvidence, failure: Sequence[str]) -> PairFindings:
    """Return the findings on a pair if at least one of its runs has no step."""
    pair = PairFindings(
        a=evidence.a.manifest.label,
        b=evidence.b.manifest.label,
        verdict="failed",
        text=[f"failed: {'; '.join(failure)}"],
        interpreters=interpreters_of(evidence.a, evidence.b),
    )
    if failure:
        return pair
    empty = next(run for run in (evidence.a, evidence.b) if not run.journal.steps)
    reason = reason_without_steps(empty)
    undecided = f"{empty.manifest.label} recorded no step, so there is nothing to compare: {reason}"
    return replace(pair, verdict=None, text=[f"undecided: {undecided}"], undecided=undecided)


@dataclass(frozen=True, slots=True)
class _JudgedCauses:
    """A verdict, adjusted to the causes that were found.

    answer: the answers of all questions
    culprits: the culprits that count under the verdict
    setup: the differences in the set-up behind the verdict, a cause before its consequences
    without: the training run to the end without the culprits
    """

    verdict: Verdict
    answer: QuestionAnswer
    culprits: Sequence[Culprit]
    setup: Sequence[SetupDifference]
    without: TrainedWithout | None
    interpreters: TwoInterpreters | None


def _with_causes(verdict: Verdict, evidence: PairEvidence, measured: MeasuredPair, step: int | None) -> _JudgedCauses:
    """Adjust the verdict to the causes that were found, and choose those that count under it."""
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    questions = (*QUESTIONS.values(), *LAST_QUESTIONS.values())
    fault = measured.scores.threshold.fault
    answer = QuestionAnswer.joined([question.answer(evidence, fault, step) for question in questions])
    culprits = in_order(answer.culprits)
    closer = None if measured.referee is None else measured.referee.closer
    changed = with_causes(verdict, supported(verdict, culprits, closer), a, b)
    verdict = unless_contradicted(changed, measured.referee, a, b)
    verdict = unless_redrawn(verdict, measured.setup, culprits)
    culprits = of_significant_steps(verdict, culprits)
    # A stage, a setting or a part of the model is named only if no op is proven.
    if verdict.word == "beyond-rounding" and not proven(verdict.word, culprits):
        first = verdict.first_significant_step
        ways = [way for way in answer.instead if first is None or way.step is None or way.step >= first]
        culprits = [*ways, *culprits]
    without = trained_without(evidence, verdict.word, culprits)
    interpreters = blamed_by_training(interpreters_of(evidence.a, evidence.b), without)
    culprits = with_versions(culprits, interpreters)
    is_other_setup = verdict.word == "different-setup"
    setup = [difference for difference in measured.setup if difference.counts] if is_other_setup else []
    return _JudgedCauses(with_place(verdict, setup, culprits), answer, culprits, setup, without, interpreters)


def _with_measurements(pair: PairFindings, measured: MeasuredPair) -> PairFindings:
    referee, scores = measured.referee, measured.scores
    closer = None if referee is None else {"a": pair.a, "b": pair.b}.get(referee.closer, referee.closer)
    return replace(
        pair,
        first_differing_step=measured.compared.first_differing_step,
        threshold=scores.threshold.fault,
        calibrated=scores.threshold.calibrated,
        closer_to_fp64=closer,
        referee=asdict(referee) if referee else None,
        controls={label: asdict(control) for label, control in measured.controls.items()},
        noise=scores.noise,
        steps=[*map(_of_step, scores.steps)],
        kinds=measured.kinds,
        losses=asdict(measured.compared.losses),
        tests=sum(int(localization.content.get("tests", 0)) for localization in measured.localized),
    )


def _with_culprits(
    pair: PairFindings, evidence: PairEvidence, measured: MeasuredPair, judged: _JudgedCauses
) -> PairFindings:
    explained, unexplained = None, ""
    if not measured.compared.identical:
        explained, unexplained = accounted(
            evidence, judged.verdict, measured.scores, measured.localized, judged.culprits
        )
    # A culprit whose call is known replaces the difference in the set-up that it causes.
    located = {(culprit.kind, culprit.what, culprit.name) for culprit in judged.culprits}
    setup = [
        Culprit(
            kind=SETUP,
            phase="setup",
            step=difference.step,
            what=difference.kind,
            name=difference.name,
            text=difference.text,
            significance="beyond-rounding",
        )
        for difference in judged.setup
        if (SETUP, difference.kind, difference.name) not in located
    ]
    return replace(
        pair,
        culprits=[*setup, *judged.culprits],
        explained=explained,
        unexplained=unexplained,
        compiler=judged.answer.compiler,
        parts=judged.answer.parts,
        pinned=tuple(judged.answer.pinned),
        interpreters=judged.interpreters,
        without=judged.without,
    )


def _sentences(measured: MeasuredPair, judged: _JudgedCauses, curves: Curves) -> list[str]:
    word, losses, referee = judged.verdict.word, measured.compared.losses, measured.referee
    sentences = [
        judged.verdict.text,
        *_spreads(measured, word, measured.scores.threshold.fault),
        measured.length,
        *(difference.text for difference in judged.setup[1:]),
    ]
    reports_losses = word != "nonfinite" and not measured.compared.identical and losses.max_relative is not None
    if reports_losses and losses.common_steps and losses.first_differing_step is None:
        sentences.append("the losses have the same bits at every step")
    elif reports_losses and losses.common_steps:
        sentences.append(
            f"the losses differ from step {losses.first_differing_step} on, by at most {losses.max_relative:.2g} of "
            f"their value (step {losses.max_relative_step})"
            + ("; that alone says nothing, as training magnifies rounding" if word in ("rounding", None) else "")
        )
    # The referee computes the reference's own ops, so it says nothing about a mode that computes something else.
    if referee is not None and referee.text and word not in ("different-setup", "nonfinite", "nondeterministic"):
        doubt = "; if the modes compute different things, that does not say which of them is right"
        sentences.append(referee.text + (doubt if word == "beyond-rounding" else ""))
    return [sentence for sentence in (*sentences, *curves.sentences) if sentence]


def _spreads(measured: MeasuredPair, word: str | None, threshold: float) -> list[str]:
    if word == "nondeterministic":
        wide = [(label, spread.spread.score) for label, spread in measured.spreads.items()]
        return [hidden_sentence(label, score, threshold) for label, score in wide if score > threshold]
    return [
        recording_sentence(label, spread.spread.score, is_noise=spread.step_without_recording(threshold) is None)
        if spread.by_recording
        else spread_sentence(label, spread.calls, spread.spread.score, spread.adding)
        for label, spread in measured.spreads.items()
    ]


def _notes(evidence: PairEvidence, measured: MeasuredPair, judged: _JudgedCauses) -> list[str]:
    """Return the notes, each once: on the verdict, on the runs and their environments, and on the evidence."""
    verdict, interpreters = judged.verdict, judged.interpreters
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    around = [] if interpreters is None else [interpreters.sentence(a, b)]
    listed = () if interpreters is None else interpreters.differences
    around += [difference for difference in environment_differences(evidence.a, evidence.b) if difference not in listed]
    scores = measured.scores
    notes = [*verdict.notes, *measured.compared.notes, *around, *scores.notes, *scores.unreplayed, *measured.unreadable]
    notes += judged.answer.notes
    notes += [text for run in named_runs(evidence).values() for text in run.manifest.notices if LEAVES_OUT in text]
    for run in (evidence.a, evidence.b):
        label, spread = run.manifest.label, measured.spreads.get(run.manifest.label)
        if spread is not None and not spread.by_recording:
            spec, ops = spec_of(run), [str(call["op"]) for call in (*spread.calls, *spread.adding)]
            advice = repeating_advice(spec, ops, compiled=spec.capabilities.compiles)
            notes.append(f"to make {label} repeat its bits, {advice}")
    if verdict.word == "failed":  # "compile is crashed: REASON" repeats the verdict
        reasons = [f": {run.manifest.message}" for run in named_runs(evidence).values() if run.manifest.message]
        notes = [note for note in notes if not any(note.endswith(why) and why in verdict.text for why in reasons)]
    return list(dict.fromkeys(notes))


def _of_step(step_score: StepScore) -> StepFindings:
    return StepFindings(
        step=step_score.step,
        score=step_score.score,
        tensor=step_score.tensor,
        taped=step_score.taped,
        on_edge=step_score.on_edge,
        discrete=step_score.discrete,
        explained="ill-conditioned" if step_score.ill_conditioned else "",
        compared=len(step_score.tensors),
        tensors=[tensor for tensor in step_score.tensors if tensor.score],  # of thousands of values, few differ
    )
