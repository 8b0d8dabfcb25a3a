"""Runs that `numdrift run` has recorded, as the beginning of an investigation."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..records.run_request import LEVELS
from ..runs.recorded_run import RecordedRun, find_investigation, runs_with_suffixes


def recorded_runs(out: Path, folder: Path, suffix: str | None) -> list[RecordedRun]:
    """The runs of one batch of an investigation, the reference first; without a suffix of its newest batch.

    Raises UsageError where they cannot be investigated, naming the flag that was missing.
    """
    path = find_investigation(out, str(folder), suffixes=[suffix] if suffix else [])
    runs = runs_with_suffixes(path, [] if suffix is None else [suffix])
    newest = suffix if suffix is not None else runs[-1].manifest.suffix
    runs = [run for run in runs if run.manifest.suffix == newest]
    if len(runs) < 2:
        raise UsageError(f"{path} holds one run, which has nothing to be held against; run another mode")
    for run in runs:
        require_parameters(run)
    return runs


def changes_nothing(folder: Path | str) -> UsageError:
    """The error for settings of runs that are given with recorded ones."""
    return UsageError(
        f"{folder} is recorded: its modes, arguments and processes are what they were; leave them out"
    )


def require_parameters(run: RecordedRun) -> None:
    """Raises UsageError for a run without what a verdict needs, and for one that cannot be repeated."""
    if run.manifest.in_process:
        raise UsageError(
            f"{run.path} was recorded within a running process, which cannot be repeated: put the training into a "
            "script and investigate that, or compare what is recorded"
        )
    if LEVELS.index(run.manifest.record) < LEVELS.index("params"):
        raise UsageError(
            f"{run.path} was recorded with --record {run.manifest.record}, and a verdict needs --record params: "
            "run it again with that"
        )


def pair_to_localize(a: RecordedRun, b: RecordedRun) -> list[RecordedRun]:
    """The two runs, which have to be of one investigation. Raises UsageError."""
    if a.path.parent != b.path.parent or a.path == b.path:
        raise UsageError(
            f"{a.path} and {b.path} are not two runs of one investigation: the experiments lie beside them"
        )
    for run in (a, b):
        require_parameters(run)
    return [a, b]
