"""`numdrift.investigate` and `numdrift.localize`: verdicts and causes, for programs, notebooks and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ..errors import UsageError
from ..investigate.experiments.investigation_plan import (
    InvestigationOptions,
    InvestigationRequest,
    compared_modes,
    pair_to_localize,
    recorded_runs,
    sentence_of_draws,
)
from ..investigate.experiments.laboratory import Laboratory, Progress
from ..investigate.method import investigate as investigate_plan
from ..investigate.method import investigate_runs, localize_runs
from ..launch.batch_plan import planned, reproducer_of
from ..records.modes.mode_spec import parse_modes
from ..records.results.findings import Findings
from ..runs.recorded_run import RecordedRun, find_investigation
from .api_running import listener, loaded, passive_threads, specs_of, with_options
from .investigation_results import Investigation, investigation_of
from .referencing import investigated_against

DEFAULT_MODES = "cpu,compile"


@with_options(InvestigationOptions, InvestigationRequest)
def investigate(
    script: Path | str | None = None,
    modes: str | Sequence[str] | None = None,
    arguments: Sequence[str] = (),
    *,
    progress: bool = False,
    **options: Unpack[InvestigationOptions],
) -> Investigation:
    """Find out whether modes differ by more than rounding, which side is right, and which op is the cause, as `numdrift
    investigate` does.

        found = numdrift.investigate("train.py", modes=["cpu", "compile"], arguments=["--epochs", "10"])
        found.pairs[0].verdict
        found.culprits_frame()

    `modes` are as in `numdrift.run` (default: cpu and compile). `script` may also be the folder of a recorded
    investigation; `suffix` then chooses one of its batches. Runs that exist under this `name` are not repeated.
    `against` is an archive of `numdrift.reference`, which then is the reference. `localize=False` judges without
    searching for causes. Each run has `nproc` processes; with `against_single`, the reference is the first mode in a
    single process. The other options are the command's (docs/guide/investigate.md). `state_budget` is in MiB and
    `timeout` in seconds per run. `max_steps` and `max_seconds` end each run early.
    `keep_files` and `in_place` control what happens to files that the script writes. `envelope` is the number of runs
    from perturbed initial parameters, and `seeds` is the number of seeds with which each mode is trained. `graphs`
    captures each mode's graphs for the report.

    Prints nothing unless `progress` is set. Writes `investigation.json` into the folder. Raises UsageError before
    anything is started, except for `steps` that the training does not reach: these are detected after the first runs.
    Raises KeyboardInterrupt if Ctrl-C ends the runs.
    """
    reporter = listener(progress)
    request = InvestigationRequest.of(script, () if modes is None else specs_of(modes), arguments, options)
    findings, folder = investigated(request, reporter)
    return investigation_of(findings.to_json(), folder, tuple(reporter.texts))


def investigated(request: InvestigationRequest, progress: Progress) -> tuple[Findings, Path]:
    """Run an investigation for `numdrift.investigate` and `numdrift investigate`.

    Return the findings and their folder. Raises UsageError.
    """
    if request.against is not None:
        return investigated_against(request, request.against, progress)
    reproducer, words = reproducer_of(request.script, request.module, request.arguments)
    laboratory = Laboratory(progress, request.jobs, request.timeout)
    if reproducer.path.is_dir():
        runs = _runs_of_folder(request, reproducer.path, words)
        # passive threads, because the runs of a round share the processor
        with passive_threads(), laboratory:
            return investigate_runs(runs, request, laboratory), runs[0].path.parent
    if request.against_single and request.nproc < 2:
        raise UsageError("--against-single compares several processes with one: set their number, as in --nproc 2")
    # adds settings that make all modes draw eager's random numbers; otherwise each pair would differ in those numbers
    specs = compared_modes(request.modes or parse_modes(DEFAULT_MODES), alone=request.against_single)
    batch = planned(replace(request, modes=tuple(specs)))
    for text in (*batch.interpreters, *filter(None, [sentence_of_draws(batch.modes)])):
        progress.say(text)
    with passive_threads(), laboratory:
        return investigate_plan(batch, request, laboratory), batch.investigation.path


def _runs_of_folder(request: InvestigationRequest, folder: Path, arguments: Sequence[str]) -> list[RecordedRun]:
    """Return the runs of a recorded investigation. Raises UsageError for options that apply only to new runs."""
    find_investigation(request.out, str(folder))  # raises an error with its own message for a folder without runs
    of_trainings = (request.modes, arguments, request.name, request.kernels, request.nproc > 1, request.run)
    if any(of_trainings) or request.against_single:
        raise UsageError(
            f"{folder} is already recorded, so its modes, arguments, steps, files, graphs and processes are fixed; "
            "leave out the options that set them"
        )
    return recorded_runs(request.out, folder, request.suffix)


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
    """Find the ops that make run b differ from run a, and prove their effect, as `numdrift localize` does.

        numdrift.localize("runs/study/cpu", "runs/study/compile", step=12).culprits_frame()

    Both are runs of one investigation. Experiments that the verdict needs are run first. `step` is the step to examine
    (default: the first significant one). Raises UsageError for runs that cannot be localized."""
    reporter = listener(progress)
    request = InvestigationRequest(
        step=step, knobs=knobs, partition_bisect=partition_bisect, scripts=scripts, confirm=confirm, timeout=timeout,
        jobs=jobs,
    )  # fmt: skip
    findings, folder = localized(loaded(a), loaded(b), request, reporter)
    return investigation_of(findings.to_json(), folder, tuple(reporter.texts))


def localized(
    a: RecordedRun, b: RecordedRun, request: InvestigationRequest, progress: Progress
) -> tuple[Findings, Path]:
    """Run a localization for `numdrift.localize` and `numdrift localize`. Return the findings and their folder."""
    runs = pair_to_localize(a, b)
    with passive_threads(), Laboratory(progress, request.jobs, request.timeout) as laboratory:
        return localize_runs(runs, request, laboratory), a.path.parent
