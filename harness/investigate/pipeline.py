"""The main job, from the runs to the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..launch.batch_plan import BatchPlan
from ..records.findings import Findings
from ..runs.recorded_run import RecordedRun
from .deciding_experiments import gather
from .investigation_plan import InvestigationPlan
from .judge import judge
from .laboratory import Interrupted, Laboratory
from .localized_steps import localized
from .pair_scores import spec_of
from .part_search import check_parts

SINGLE = "single"
"""What the run of a single process is called beside those of several."""


def investigate(plan: InvestigationPlan, laboratory: Laboratory) -> Findings:
    """Run the modes, repeat them, start their steps from one state, measure the noise, judge every pair,
    and look for the causes of what differs.

    Runs and experiments that are there already are used. Writes `investigation.json`. Raises UsageError before
    anything is started, KeyboardInterrupt when Ctrl-C ended a round of runs.
    """
    if plan.partition_bisect:
        check_parts(plan.modes, plan)
    try:
        runs = laboratory.free(modes_of(plan)) if not plan.against_single else _with_single(plan, laboratory)
    except Interrupted:
        raise KeyboardInterrupt from None
    return investigate_runs(runs, plan, laboratory)


def _with_single(plan: InvestigationPlan, laboratory: Laboratory) -> list[RecordedRun]:
    """The free runs, after one of the first mode in a single process, which has the name `single`."""
    single = replace(plan.modes[0], name=SINGLE)
    names = [SINGLE, *(spec.name for spec in plan.modes)]
    alone = replace(modes_of(plan), modes=[single], nproc=1, sketches=True, positions=names)
    return [*laboratory.free(alone), *laboratory.free(replace(modes_of(plan), positions=names))]


def investigate_runs(
    runs: Sequence[RecordedRun], plan: InvestigationPlan, laboratory: Laboratory
) -> Findings:
    """The same for runs that are recorded already; the first is the reference."""
    findings = _found(runs, plan, laboratory)
    findings.write(runs[0].path.parent)
    return findings


def localize_runs(runs: Sequence[RecordedRun], plan: InvestigationPlan, laboratory: Laboratory) -> Findings:
    """The same for one pair of an investigation, whose other findings stay."""
    findings = _found(runs, plan, laboratory)
    findings.update(runs[0].path.parent)
    return findings


def _found(runs: Sequence[RecordedRun], plan: InvestigationPlan, laboratory: Laboratory) -> Findings:
    if plan.partition_bisect:
        check_parts([spec_of(run) for run in runs], plan)
    try:
        gather(laboratory, runs, plan)
        findings = localized(laboratory, runs, plan) if plan.localize != "none" else judge(runs)
    except Interrupted:
        raise KeyboardInterrupt from None
    return replace(
        findings,
        training_runs=laboratory.made,
        reused=laboratory.reused,
        steps_trained=laboratory.steps,
        seconds=laboratory.elapsed,
    )


def modes_of(plan: InvestigationPlan) -> BatchPlan:
    """The free runs of an investigation, as a batch."""
    return BatchPlan(
        script=plan.script,
        module=plan.module,
        strict=plan.strict,
        modes=plan.modes,
        investigation=plan.investigation,
        arguments=plan.arguments,
        timeout=plan.timeout,
        jobs=plan.jobs,
        force=plan.force,
        kernels=plan.kernels,
        nproc=plan.nproc,
    )
