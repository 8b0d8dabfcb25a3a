"""Which step of each pair is localized."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..records.findings import Findings, PairFindings
from ..records.localization_record import Localization
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import state_steps
from .chosen_steps import selection
from .compiler_settings import search_settings
from .evidence import PairEvidence, evidence_for
from .investigation_plan import InvestigationPlan
from .judge import judge, judge_pair
from .laboratory import Laboratory
from .localization import Task, known, localize
from .mark_steps import search_mark_steps
from .pair_scores import spec_of
from .part_search import search_parts
from .without_culprits import confirm, proven

MOST_STEPS = 8
"""Steps of a pair that are localized at most."""

SEARCHED = ("rounding", "beyond-rounding", "nonfinite")
"""Verdicts whose cause lies in a step that both modes have taken from one state."""


def localized(laboratory: Laboratory, runs: Sequence[RecordedRun], plan: InvestigationPlan) -> Findings:
    """Judge the pairs, and localize the step that each verdict is about.

    A step whose drift turns out to be that of a discrete choice is none to be significant: then the next one is localized.
    """
    findings = judge(runs, plan.step)
    done: dict[str, list[int]] = {}
    last: dict[Path, Task] = {}
    for _ in range(MOST_STEPS):
        tasks = []
        for run, pair in zip(runs[1:], findings.pairs, strict=True):
            before = done.setdefault(run.path.name, [])
            evidence = evidence_for(runs[0], run)
            step = pair.first_significant_step if before else _wanted(pair, evidence, plan)
            if plan.localize == "faults" and pair.verdict == "rounding":
                continue
            if step is not None and step not in before and pair.threshold and evidence.forced is not None:
                before.append(step)
                tasks.append(Task(evidence, step, pair.threshold))
                last[run.path] = tasks[-1]
        if not tasks:
            break
        findings = _with_causes(laboratory, runs, findings, tasks, plan)
    if plan.partition_bisect:
        for run, pair in zip(runs[1:], findings.pairs, strict=True):
            if pair.verdict in SEARCHED and run.path in last:
                search_parts(laboratory, last[run.path], plan)
            else:
                laboratory.progress.say(
                    f"{pair.b}: {pair.verdict or 'undecided'}, so there is no step to bisect"
                )
        findings = _judged_again(runs, findings, last, plan)
    if plan.confirm:
        made = laboratory.made
        confirm(laboratory, runs, findings, plan)
        if laboratory.made > made:
            findings = judge(runs, plan.step)
    return findings


def _with_causes(
    laboratory: Laboratory,
    runs: Sequence[RecordedRun],
    findings: Findings,
    tasks: Sequence[Task],
    plan: InvestigationPlan,
) -> Findings:
    """Localize these steps, and judge again what is new."""
    fresh = {task.evidence.b.path for task in tasks if known(task) is None}
    for task, found in zip(tasks, localize(laboratory, tasks, plan), strict=True):
        if found is not None and found.op_by_op_differs and _is_new(found, task):
            search_mark_steps(laboratory, task, found, plan)
            fresh.add(task.evidence.b.path)
    findings = _judged_again(runs, findings, fresh, plan)
    unexplained = {pair.b for pair in findings.pairs if _is_unexplained(pair)}
    made, searched = laboratory.made, set[Path]()
    for task in tasks:
        if plan.knobs or task.evidence.b.manifest.label in unexplained:
            search_settings(laboratory, task, plan)
            searched.add(task.evidence.b.path)
    return _judged_again(runs, findings, searched, plan) if laboratory.made > made else findings


def _judged_again(
    runs: Sequence[RecordedRun], findings: Findings, changed: Collection[Path], plan: InvestigationPlan
) -> Findings:
    """The findings with the pairs of these runs judged anew."""
    pairs = [
        judge_pair(evidence_for(runs[0], run), comparisons=len(findings.pairs), step=plan.step)
        if run.path in changed
        else pair
        for run, pair in zip(runs[1:], findings.pairs, strict=True)
    ]
    return replace(findings, pairs=pairs)


def _is_unexplained(pair: PairFindings) -> bool:
    """Whether no op could be named that makes a drift beyond rounding."""
    return pair.verdict == "beyond-rounding" and not proven(pair.verdict, pair.culprits)


def _is_new(found: Localization, task: Task) -> bool:
    """Whether a lazy mode's policies were not tried yet."""
    return spec_of(task.evidence.b).base == "lazy" and "policies" not in found.content


def step_of(pair: PairFindings) -> int | None:
    """The step to look for the cause in: the first significant one, else the worst, of those with a tape first."""
    if pair.verdict not in SEARCHED and not _draws_only(pair):
        return None
    if pair.first_significant_step is not None:
        return pair.first_significant_step
    differing = [one for one in pair.steps if one["score"] or one["discrete"]]
    ranked = sorted(differing, key=lambda one: (not one["taped"], -one["score"], one["step"]))
    return int(ranked[0]["step"]) if ranked else None


def _wanted(pair: PairFindings, evidence: PairEvidence, plan: InvestigationPlan) -> int | None:
    """The step that was asked for, else the one that the verdict is about."""
    if plan.step is None:
        return step_of(pair)
    runs = (evidence.a_again, *evidence.kept)
    kept = sorted({step for run in runs if run is not None for step in state_steps(run.path)})
    if plan.step not in kept:
        raise UsageError(
            f"step {plan.step} was not started from the reference's state; there are {selection(kept)}: "
            "`numdrift investigate --steps LIST` makes others"
        )
    return plan.step


def _draws_only(pair: PairFindings) -> bool:
    """Whether nothing of the set-up differs but what was drawn in a step, which may be the mode's own doing."""
    setup = [one for one in pair.culprits if one["kind"] == "setup"]
    return pair.verdict == "different-setup" and all(one.get("what") == "generator" for one in setup)
