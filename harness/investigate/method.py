"""The method of an investigation, from the modes to the findings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ..drift.repetition import COMPUTED
from ..drift.run_comparison import compare_runs
from ..errors import UsageError
from ..launch.batch_plan import BatchPlan
from ..records.results.experiment import Experiment
from ..records.results.findings import Findings, PairFindings
from ..records.run.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun
from .evidence.pair_evidence import EvidenceFolder, evidence_for
from .evidence.pair_scores import spec_of
from .evidence.rerun_noise import keep_noise_of_reruns
from .experiments.chosen_steps import choose
from .experiments.forced_workers import end_without_tapes, settle_forced
from .experiments.further_kinds import compare_further_kinds
from .experiments.investigation_plan import InvestigationRequest
from .experiments.laboratory import Interrupted, Laboratory
from .experiments.pointed_step import measure_pointed_step
from .experiments.restored import not_restored
from .experiments.rounds import (
    FROM_ITSELF,
    apart,
    control,
    control_of,
    date_onset,
    envelope,
    from_itself,
    has_ops,
    kept_steps,
    noise_without_tape,
    not_of_itself,
    once_more,
    repeats_each_call,
    seeds,
    tapes_of,
    unsure,
)
from .experiments.search_time import default_budget, expected_seconds
from .experiments.suspicious_steps import look_closer, suspicious
from .experiments.tapes_beside import complete_noise, noise_beside, referee_beside, run_referee
from .judging.judge import judge, judge_pair
from .next_step import next_inquiry
from .questions.localizer import expect_localizer
from .questions.part_search import check_parts
from .questions.pinned_inputs import expect_first_steps
from .questions.question import Inquiry, Question
from .questions.question_table import LAST_QUESTIONS, QUESTIONS, SOUGHT
from .questions.whole_trainings import MEMBERS, is_left_over, not_trained, without_culprits

SINGLE = "single"
"""The name of the reference run in one process, with which the runs in several processes are compared."""

MOST_STEPS = 8
"""The largest number of steps of a pair that are examined."""


def investigate(batch: BatchPlan, plan: InvestigationRequest, laboratory: Laboratory) -> Findings:
    """Run the modes of a batch, and investigate the runs.

    Existing runs and experiments are reused. Writes `investigation.json`. Raises UsageError before anything is started,
    and KeyboardInterrupt if Ctrl-C ended a round of runs.
    """
    if plan.partition_bisect:
        check_parts(batch.modes, plan, nproc=batch.nproc)
    try:
        if plan.against_single:  # the reference is one process, which takes the whole batch
            names = [SINGLE, *(spec.name for spec in batch.modes)]
            single = replace(batch.modes[0], name=SINGLE)
            alone = replace(batch, modes=[single], nproc=1, sketches=True, positions=names)
            runs = [*laboratory.free(alone), *laboratory.free(replace(batch, positions=names))]
        elif plan.steps is None:
            # Half of the state budget is for the states that these runs keep. The other half is for the second training
            # run, which keeps the outcomes of the steps that begin in these states.
            runs = laboratory.free(replace(batch, checkpoints=plan.state_budget // 2))
        else:
            runs = laboratory.free(batch)
    except Interrupted:
        raise KeyboardInterrupt from None
    return investigate_runs(runs, plan, laboratory)


def investigate_runs(runs: Sequence[RecordedRun], plan: InvestigationRequest, laboratory: Laboratory) -> Findings:
    """Investigate runs that are already recorded; the first is the reference."""
    findings = _found(runs, plan, laboratory)
    findings.write(runs[0].path.parent)
    return findings


def localize_runs(runs: Sequence[RecordedRun], plan: InvestigationRequest, laboratory: Laboratory) -> Findings:
    """Investigate one pair of an investigation, and keep the findings on its other pairs."""
    if runs[0].manifest.elsewhere:
        raise UsageError(
            f"{runs[0].path} was trained elsewhere ({runs[0].manifest.elsewhere}), so its ops cannot be executed here: "
            "compare two modes of this machine with `numdrift investigate`"
        )
    laboratory.search.budget = math.inf  # its user asked for the causes
    findings = _found(runs, plan, laboratory)
    findings.update(runs[0].path.parent)
    return findings


def changed_verdicts(before: Findings, after: Findings) -> list[str]:
    """Say which pairs have a different verdict now that their causes are known."""
    return [
        f"{now.b} against {now.a}: no longer {earlier.verdict or 'undecided'}, because of its causes: {now.text[0]}"
        for earlier, now in zip(before.pairs, after.pairs, strict=True)
        if earlier.verdict != now.verdict
    ]


def _found(runs: Sequence[RecordedRun], plan: InvestigationRequest, laboratory: Laboratory) -> Findings:
    if runs[0].manifest.elsewhere:  # it cannot be trained again, so only the steps that it has are compared
        laboratory.frozen = runs[0].path.name
        steps = StepSelection.of(kept_steps(runs[0]))
        localize = plan.localize if has_ops(runs[0]) else "none"
        plan = replace(plan, steps=steps, localize=localize, confirm=False, envelope=0, seeds=0)
    laboratory.investigate = investigate_runs
    if laboratory.search.budget is None:  # a question may investigate further runs within the same time
        laboratory.search.budget = default_budget(runs) if plan.budget is None else plan.budget
    if plan.partition_bisect:
        check_parts([spec_of(run) for run in runs], plan, nproc=max(run.manifest.world_size for run in runs))
    trained_here = [run for run in runs if not run.manifest.elsewhere]
    for sentence in dict.fromkeys(text for run in trained_here for text in not_restored(run)):
        laboratory.progress.say(sentence)
    try:
        decide(runs, plan, laboratory)
        findings = judge(runs, plan.step)
        if plan.localize != "none":
            for pair in findings.pairs:
                laboratory.progress.say(f"{pair.b} against {pair.a}: {pair.text[0]}")
            before = findings
            findings = explain(findings, runs, plan, laboratory)
            if plan.confirm:
                findings = confirm(findings, runs, plan, laboratory)
            for sentence in changed_verdicts(before, findings):
                laboratory.progress.say(sentence)
    except Interrupted:
        raise KeyboardInterrupt from None
    pairs = zip(runs[1:], findings.pairs, strict=True)
    return replace(
        findings,
        pairs=[_with_note(pair, laboratory.search.note_of(run.path)) for run, pair in pairs],
        training_runs=laboratory.made,
        reused=laboratory.reused,
        steps_trained=laboratory.steps,
        seconds=laboratory.elapsed,
    )


def _with_note(pair: PairFindings, note: str) -> PairFindings:
    return replace(pair, notes=[*pair.notes, note]) if note else pair


def decide(runs: Sequence[RecordedRun], plan: InvestigationRequest, laboratory: Laboratory) -> None:
    """Run the experiments that a verdict needs.

    Each mode trains once more: this run is its control, begins the chosen steps in the reference's state, and stays
    alive as a worker. Then the noise of these steps is measured, and their values in double are computed. Training runs
    to the end are made only if they are requested.
    """
    reference = runs[0]
    able = [run for run in runs if run.journal.steps and run.manifest.got_through]
    others = [run for run in able if run is not reference]
    if reference not in able or not others:  # if a side has failed, there is nothing to decide
        return
    compared = [compare_runs(reference, run, ()) for run in others]
    chosen = choose(reference, others, compared, plan, laboratory.progress)
    differing = [run for run, comparison in zip(others, compared, strict=True) if not comparison.identical]
    looks = bool(differing) and plan.localize != "none"
    laboratory.progress.expects(
        expected_seconds([reference, *others], differs=bool(differing), causes=looks, confirm=looks and plan.confirm)
    )
    # If the runs existed already, the causes of their differences may be known, too.
    asks_for_causes = bool(differing) and plan.localize != "none" and laboratory.made > 0
    if asks_for_causes and plan.scripts:
        # A script will show the cause of the difference. The interpreter that will execute the script is started now,
        # and imports its modules in the background.
        laboratory.scripts(spec_of(reference), [spec_of(run) for run in differing])
    if plan.localize != "none" and laboratory.made > 0:
        expect_first_steps(laboratory, reference)
    with ExitStack() as beside:
        if differing:  # else nothing is compared with the noise
            beside.enter_context(noise_beside(reference, control_of(reference), chosen, laboratory))
        # Calls that are made twice in each process are their own control, as long as nothing else is asked of them.
        if differing or not all(repeats_each_call(run) for run in able):
            laboratory.make(once_more(reference, others, chosen))
    end_without_tapes(laboratory, reference, differing)
    repeated = control(reference) if differing else None
    if repeated is not None and not repeated.repeatable and repeated.what in COMPUTED:
        own = from_itself(reference, chosen)
        if own.plans:
            with noise_beside(reference, Experiment(FROM_ITSELF, reference.path.name), chosen, laboratory):
                laboratory.make(own)
    # A reference whose batches or draws do not repeat cannot be compared with another mode.
    if repeated is not None and (repeated.repeatable or repeated.what in COMPUTED):
        if asks_for_causes and len(differing) == 1:
            expect_localizer(laboratory, reference, differing[0])
        folder, progress = EvidenceFolder.of(reference), laboratory.progress
        complete_noise(reference, tapes_of(reference), chosen, laboratory, repeats=repeated.repeatable)
        # The referee takes one processor while the experiments in this context take the others.
        with referee_beside(folder, evidence_for(reference, differing[0]).taped, laboratory):
            doubtful = not_of_itself(reference, differing, chosen)
            for run in doubtful:
                progress.say(
                    f"after steps begun in the reference's state, {run.manifest.label} continues differently: it "
                    "carries something over that no state contains, or it does not repeat itself; its control is a "
                    "separate run"
                )
            alone = [run for run in differing if run in doubtful or run.path not in chosen.of]
            laboratory.make(apart(reference, alone, doubtful, chosen))
            for run in differing:
                settle_forced(laboratory, reference, run)
            for run in differing:  # first, because a drift that a discrete choice explains needs no further experiments
                look_closer(laboratory, reference, run)
                if measure_pointed_step(laboratory, reference, run):
                    look_closer(laboratory, reference, run)
            laboratory.make(unsure(reference, differing))
        laboratory.make(noise_without_tape(reference, chosen, progress))
        keep_noise_of_reruns(evidence_for(reference, differing[0]))
        if plan.steps is None:
            firsts = {
                run.path: comparison.first_differing_step for run, comparison in zip(others, compared, strict=True)
            }
            compare_further_kinds(laboratory, reference, differing, firsts)
        date_onset(laboratory, reference, differing, plan)
        laboratory.make(suspicious(reference, differing))
        run_referee(folder, evidence_for(reference, differing[0]).taped, laboratory)  # for tapes of suspicious steps
    laboratory.make(envelope(reference, plan.envelope))
    laboratory.make(seeds([reference, *others], plan.seeds))


def explain(
    findings: Findings, runs: Sequence[RecordedRun], plan: InvestigationRequest, laboratory: Laboratory
) -> Findings:
    """Ask the questions about the step of each verdict, and judge again with their answers.

    If the drift of a step turns out to come from a discrete choice, the step is not significant, and the next one is
    examined. Of a reference that was trained elsewhere, only the ops are asked about: nothing else of it can be
    executed here.
    """
    looked: dict[Path, list[Inquiry]] = {run.path: [] for run in runs[1:]}
    questions = {"ops": QUESTIONS["ops"]} if laboratory.frozen else QUESTIONS
    for _ in range(MOST_STEPS):
        inquiries = []
        for run, pair in zip(runs[1:], findings.pairs, strict=True):
            inquiry = next_inquiry(pair, evidence_for(runs[0], run), looked[run.path], plan)
            if inquiry is not None and looked[run.path] and not laboratory.has_time:
                laboratory.search.leave_out(run.path, f"step {inquiry.step}")
            elif inquiry is not None:
                looked[run.path].append(inquiry)
                inquiries.append(inquiry)
        if not inquiries:
            break
        findings = _ask_all(questions, findings, runs, inquiries, plan, laboratory)
        if not spec_of(runs[0]).capabilities.tapes_itself:  # a separate process has recorded the tape by now
            evidence = evidence_for(runs[0], inquiries[0].evidence.b)
            run_referee(EvidenceFolder.of(runs[0]), evidence.measured, laboratory)
            findings = judge(runs, plan.step)
    if laboratory.frozen:
        return findings
    at_rest = [
        looked[run.path][-1] if looked[run.path] else Inquiry(evidence_for(runs[0], run), None, pair)
        for run, pair in zip(runs[1:], findings.pairs, strict=True)
    ]
    return _ask_all(LAST_QUESTIONS, findings, runs, at_rest, plan, laboratory)


def _ask_all(
    questions: Mapping[str, Question],
    findings: Findings,
    runs: Sequence[RecordedRun],
    inquiries: Sequence[Inquiry],
    plan: InvestigationRequest,
    laboratory: Laboratory,
) -> Findings:
    """Return the findings after these questions. Each question is asked with the results of the one before it.

    Once the time of the search is over, only the ops of the steps are asked about.
    """
    for name, question in questions.items():
        pair_by_path = {run.path: pair for run, pair in zip(runs[1:], findings.pairs, strict=True)}
        current = [replace(inquiry, pair=pair_by_path[inquiry.evidence.b.path]) for inquiry in inquiries]
        asking = [inquiry for inquiry in current if question.asks(inquiry, plan)]
        if name != "ops" and not laboratory.has_time:
            for inquiry in asking:
                laboratory.search.leave_out(inquiry.evidence.b.path, SOUGHT[name])
            continue
        if not asking:
            continue
        question.look(laboratory, asking, plan)
        for open_inquiry in asking:
            b = open_inquiry.evidence.b
            pair_by_path[b.path] = judge_pair(evidence_for(runs[0], b), comparisons=len(findings.pairs), step=plan.step)
        findings = replace(findings, pairs=list(pair_by_path.values()))
    return findings


def confirm(
    findings: Findings, runs: Sequence[RecordedRun], plan: InvestigationRequest, laboratory: Laboratory
) -> Findings:
    """Train every mode to the end without its culprits. If a result does not equal the reference bit for bit, also
    compute the envelope."""
    made = laboratory.made
    if not laboratory.has_time:
        for training in without_culprits(runs, findings).plans:
            assert training.experiment is not None
            run = runs[0].path.with_name(training.experiment.run)
            laboratory.search.leave_out(run, "the training without its culprits")
        return findings
    for sentence in not_trained(runs, findings):
        laboratory.progress.say(sentence)
    trained = without_culprits(runs, findings)
    laboratory.make(trained)
    if is_left_over(runs, findings, trained):
        laboratory.make(envelope(runs[0], max(plan.envelope, MEMBERS)))
    return judge(runs, plan.step) if laboratory.made > made else findings
