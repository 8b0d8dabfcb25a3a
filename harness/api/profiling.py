"""Plans the trainings of `numdrift profile`, and finds earlier profiled runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..launch.batch_plan import BatchPlan, planned
from ..launch.execute_batch import BatchResult
from ..records.codec import of_fields
from ..records.modes.mode_spec import ModeSpec
from ..records.run.run_request import requested
from ..records.run.step_selection import KeepParams, StepSelection
from ..records.tools.profile_record import DEFAULT_STEPS, MEBIBYTE, PROFILE, Kind, RunProfile, TraceRequest
from ..runs.recorded_run import RecordedRun, is_there, load_run, runs_in
from ..runs.run_layout import MANIFEST
from ..tools.profile.profile_made import profile_of


def planned_profile(
    script: str | None,
    modes: Sequence[ModeSpec],
    arguments: Sequence[str],
    *,
    module: str | None,
    kind: Kind,
    steps: str | None,
    duration: float | None,
    limit: float,
    name: str | None,
    out: Path,
    timeout: float | None,
    force: bool,
    max_steps: int | None,
    max_seconds: float | None,
) -> BatchPlan:
    """Plan the runs whose `steps` are traced; with `duration`, tracing ends so many seconds after the first of them.

    `limit` is the size of a mode's trace in MiB. Raises UsageError.
    """
    traced = DEFAULT_STEPS if steps is None else StepSelection.parse(steps)
    if not traced.ranges:
        raise UsageError("--steps names no step; steps count from 0, as in 2-5")
    if duration is not None and steps is None:  # all steps within the duration
        traced = StepSelection(((DEFAULT_STEPS.ranges[0][0], None),))
    request = TraceRequest(kind, traced, duration, int(limit * MEBIBYTE))
    return planned(
        script,
        module,
        arguments,
        modes,
        out,
        name,
        record="losses",
        keep_params=KeepParams.parse("last"),
        timeout=timeout,
        force=force,
        instruments={"profile": of_fields(request)},
        **requested({"max_steps": max_steps, "max_seconds": max_seconds}),
    )


def profiled_before(script: str, *, asks_for_runs: bool) -> list[RecordedRun] | None:
    """Return the profiled runs that `script` names, or None if it names a script.

    Raises UsageError if options request runs as well: profiled runs are not repeated.
    """
    path = Path(script)
    if is_there(path / MANIFEST):
        runs = [load_run(path)]
    elif is_there(path) and path.is_dir() and (recorded := runs_in(path)):
        runs = [run for run in recorded if is_there(run.path / PROFILE)] or recorded
    else:
        return None
    if asks_for_runs:
        raise UsageError(
            f"{script} was recorded already, and nothing is run again: leave out what to run, or give the script"
        )
    return runs


def profiles_made(result: BatchResult, *, keep_working: bool) -> tuple[list[RecordedRun], list[RunProfile]]:
    """Return the runs with a profile, and their profiles. A run that failed before a step was traced has none."""
    runs = [RecordedRun(run.folder.path, run.manifest) for run in result.runs]
    begun = [run for run in runs if not run.manifest.failed or is_there(run.path / PROFILE)]
    return begun, [profile_of(run, keep_working=keep_working) for run in begun]
