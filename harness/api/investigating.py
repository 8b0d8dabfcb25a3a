"""`numdrift.investigate` and `numdrift.localize`: verdicts and causes, for programs, notebooks and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from ..investigate.experiments.investigation_plan import (
    DEFAULT_STATE_BUDGET,
    InvestigationPlan,
    compared_modes,
    pair_to_localize,
    recorded_runs,
    sentence_of_draws,
)
from ..investigate.experiments.laboratory import Laboratory, Progress
from ..investigate.method import investigate as investigate_plan
from ..investigate.method import investigate_runs, localize_runs
from ..launch.batch_kernels import OwnKernels, own_kernels
from ..launch.batch_plan import planned, reproducer_of
from ..records.modes.mode_spec import ModeSpec, parse_modes
from ..records.results.findings import Findings
from ..records.run.run_request import requested
from ..records.run.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun, find_investigation
from .api_running import loaded, passive_threads, specs_of, told
from .investigation_results import Investigation, investigation_of

DEFAULT_MODES = "cpu,compile"

Localized = bool | Literal["all", "faults", "none"]
"""The pairs whose causes are searched: every pair that differs (True, `all`), pairs beyond rounding (`faults`), or none
(False, `none`)."""


def investigate(
    script: Path | str | None = None,
    modes: str | Sequence[str] | None = None,
    arguments: Sequence[str] = (),
    *,
    module: str | None = None,
    out: Path | str = "runs",
    name: str | None = None,
    suffix: str | None = None,
    steps: str | None = None,
    envelope: int = 0,
    seeds: int = 0,
    state_budget: float = DEFAULT_STATE_BUDGET / 2**20,
    graphs: bool = False,
    kernels: OwnKernels | None = None,
    nproc: int = 1,
    against_single: bool = False,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    keep_files: bool = False,
    in_place: bool = False,
    timeout: float | None = None,
    jobs: int = 2,
    localize: Localized = True,
    scripts: bool = True,
    confirm: bool = True,
    knobs: bool = False,
    partition_bisect: bool = False,
    strict: bool = False,
    force: bool = False,
    progress: bool = False,
) -> Investigation:
    """Find out whether modes differ by more than rounding, which side is right, and which op causes it: `numdrift
    investigate`.

        found = numdrift.investigate("train.py", modes=["cpu", "compile"], arguments=["--epochs", "10"])
        found.pairs[0].verdict
        found.culprits_frame()

    `modes` are as in `numdrift.run` (default: cpu and compile). `script` may also be the folder of a recorded
    investigation, and `suffix` one of its batches. Runs that exist under this `name` are not repeated. `localize=False`
    judges without searching for causes. Each run has `nproc` processes; `against_single` compares them with the first
    mode in one process. The other options are the command's (docs/guide/investigate.md): `state_budget` is in MiB,
    `timeout` in seconds per run; `max_steps` and `max_seconds` end each training; `keep_files` and `in_place` decide
    about the files that a training writes; `envelope` and `seeds` are numbers of further trainings; `graphs` captures
    each mode's graphs for the report.

    Prints nothing unless `progress` is set. Writes `investigation.json` into the folder. Raises UsageError before
    anything is started, except for `steps` that the training does not have: those are found after the first runs.
    Raises KeyboardInterrupt when Ctrl-C ended the runs.
    """
    if isinstance(localize, bool):
        localize = "all" if localize else "none"
    if localize not in ("all", "faults", "none"):
        raise UsageError(f"localize={localize!r} is none of 'all', 'faults', 'none', True and False")
    teller = told(progress)
    findings, folder = investigated(
        script,
        None if modes is None else specs_of(modes),
        arguments,
        teller,
        module=module,
        out=out,
        name=name,
        suffix=suffix,
        steps=steps,
        envelope=envelope,
        seeds=seeds,
        state_budget=state_budget,
        graphs=graphs,
        kernels=kernels,
        nproc=nproc,
        against_single=against_single,
        max_steps=max_steps,
        max_seconds=max_seconds,
        keep_files=keep_files,
        in_place=in_place,
        timeout=timeout,
        jobs=jobs,
        localize=localize,
        scripts=scripts,
        confirm=confirm,
        knobs=knobs,
        partition_bisect=partition_bisect,
        strict=strict,
        force=force,
    )
    return investigation_of(findings.to_json(), folder, tuple(teller.said))


def investigated(
    script: Path | str | None,
    modes: Sequence[ModeSpec] | None,
    arguments: Sequence[str],
    progress: Progress,
    *,
    module: str | None,
    out: Path | str,
    name: str | None,
    suffix: str | None,
    steps: str | None,
    state_budget: float,
    graphs: bool,
    kernels: OwnKernels | None,
    nproc: int,
    against_single: bool,
    max_steps: int | None,
    max_seconds: float | None,
    keep_files: bool,
    in_place: bool,
    jobs: int,
    timeout: float | None,
    strict: bool,
    force: bool,
    **fields: Any,
) -> tuple[Findings, Path]:
    """Run an investigation for `numdrift.investigate` and `numdrift investigate`; `fields` are fields of the plan.

    Return the findings and their folder. Raises UsageError.
    """
    reproducer, words = reproducer_of(None if script is None else str(script), module, tuple(arguments))
    selected = None if steps is None else StepSelection.parse(steps)
    budget = int(state_budget * 2**20)
    plan = InvestigationPlan(steps=selected, state_budget=budget, against_single=against_single, **fields)
    laboratory = Laboratory(progress, jobs, timeout)
    if reproducer.path.is_dir():
        find_investigation(Path(out), str(reproducer.path))  # refuse a folder without runs first, with its own message
        limited = max_steps is not None or max_seconds is not None or keep_files or in_place or graphs
        if modes or words or name or kernels or nproc > 1 or against_single or limited:
            raise UsageError(
                f"{reproducer.path} is recorded: its modes, arguments, steps, files, graphs and processes are what "
                "they were; leave them out"
            )
        runs = recorded_runs(Path(out), reproducer.path, suffix)
        # passive threads, because the runs of a round share the processor
        with passive_threads(), laboratory:
            return investigate_runs(runs, plan, laboratory), runs[0].path.parent
    if against_single and nproc < 2:
        raise UsageError("--against-single holds several processes against one: say how many, as in --nproc 2")
    # without the settings that these modes get, a comparison would only show different random numbers
    specs = compared_modes(modes or parse_modes(DEFAULT_MODES), alone=against_single)
    batch = planned(
        script, module, arguments, specs, out, name,
        kernels=own_kernels(kernels), nproc=nproc, jobs=jobs, timeout=timeout, strict=strict, force=force,
        **requested(
            {
                "graphs": graphs, "max_steps": max_steps, "max_seconds": max_seconds, "keep_files": keep_files,
                "in_place": in_place,
            }
        ),
    )  # fmt: skip
    for text in (*batch.interpreters, *filter(None, [sentence_of_draws(batch.modes)])):
        progress.say(text)
    with passive_threads(), laboratory:
        return investigate_plan(batch, plan, laboratory), batch.investigation.path


def localize(
    a: RecordedRun | Path | str,
    b: RecordedRun | Path | str,
    step: int | None = None,
    *,
    knobs: bool = False,
    partition_bisect: bool = False,
    scripts: bool = True,
    confirm: bool = True,
    timeout: float | None = None,
    jobs: int = 2,
    progress: bool = False,
) -> Investigation:
    """Find the ops that make run b differ from run a, and prove it: `numdrift localize`.

        numdrift.localize("runs/study/cpu", "runs/study/compile", step=12).culprits_frame()

    Both are runs of one investigation. Experiments that the verdict needs are run first. `step` is the step to examine
    (default: the first significant one). Raises UsageError for runs that cannot be localized."""
    teller = told(progress)
    findings, folder = localized(
        loaded(a),
        loaded(b),
        teller,
        step=step,
        knobs=knobs,
        partition_bisect=partition_bisect,
        scripts=scripts,
        confirm=confirm,
        timeout=timeout,
        jobs=jobs,
    )
    return investigation_of(findings.to_json(), folder, tuple(teller.said))


def localized(
    a: RecordedRun, b: RecordedRun, progress: Progress, *, jobs: int, timeout: float | None, **fields: Any
) -> tuple[Findings, Path]:
    """Run a localization for `numdrift.localize` and `numdrift localize`; `fields` are fields of the plan.

    Return the findings and their folder.
    """
    runs = pair_to_localize(a, b)
    with passive_threads(), Laboratory(progress, jobs, timeout) as laboratory:
        findings = localize_runs(runs, InvestigationPlan(**fields), laboratory)
    return findings, a.path.parent
