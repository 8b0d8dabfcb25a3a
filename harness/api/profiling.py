"""Plans the training runs of `numdrift profile`, and finds earlier profiled runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from ..errors import UsageError
from ..launch.batch_plan import BatchPlan, planned
from ..launch.execute_batch import BatchResult
from ..launch.training_request import TrainingRequest
from ..records.codec import of_fields
from ..records.run.step_selection import KeepParams, StepSelection
from ..records.run.user_option import MEBIBYTE, in_bytes, option, selection
from ..records.tools.profile_record import DEFAULT_STEPS, PROFILE, Kind, RunProfile, TraceRequest
from ..runs.recorded_run import RecordedRun, is_there, load_run, runs_in
from ..runs.run_layout import MANIFEST
from ..tools.profile.profile_made import profile_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest(TrainingRequest):
    """The training runs of `numdrift profile`, and the part of each to trace."""

    kind: Kind = option(
        "trace", "The level of detail of the traces.", flag="--type", choices=get_args(Kind), shows_default=True
    )
    steps: StepSelection | None = option(
        None,
        f"Steps to trace, as in 2-5 (default: {DEFAULT_STEPS}).",
        selection("--steps", "no step; steps are numbered from 0, as in 2-5"),
        metavar="LIST",
    )
    duration: float | None = option(
        None,
        "Trace for this long, beginning with the first step of --steps. Tracing stops at the end of the step in which "
        "the time runs out.",
        kind=float,
        least=0,
        metavar="SECONDS",
    )
    limit: int = option(
        256 * MEBIBYTE,
        "Stop tracing a mode after the step in which its trace reaches this size.",
        in_bytes,
        written=256.0,
        least=0,
        metavar="MIB",
        shows_default=True,
    )

    @property
    def trace(self) -> TraceRequest:
        """The part of each run to trace.

        With a `duration` but no `steps`, it covers all steps from the first default step to the end of the duration.
        """
        steps = self.steps or DEFAULT_STEPS
        if self.duration is not None and self.steps is None:
            steps = StepSelection(((DEFAULT_STEPS.ranges[0][0], None),))
        return TraceRequest(self.kind, steps, self.duration, self.limit)


def planned_profile(request: ProfileRequest) -> BatchPlan:
    """Plan the runs whose steps are traced. Raises UsageError."""
    return planned(
        request,
        record="losses",
        keep_params=KeepParams.parse("last"),
        instruments={"profile": of_fields(request.trace)},
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
            f"{script} is already recorded and will not be run again: name the script instead, or leave out the "
            "options for new runs"
        )
    return runs


def profiles_made(result: BatchResult, *, keep_working: bool) -> tuple[list[RecordedRun], list[RunProfile]]:
    """Return the runs with a profile, and their profiles. A run that failed before a step was traced has none."""
    runs = [RecordedRun(run.folder.path, run.manifest) for run in result.runs]
    begun = [run for run in runs if not run.manifest.failed or is_there(run.path / PROFILE)]
    return begun, [profile_of(run, keep_working=keep_working) for run in begun]
