"""Chooses the runs of `numdrift runs export`, and writes them in the format of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import RunNotFound, UsageError, nearest
from ..runs.recorded_run import RecordedRun, find_investigation, ranks_of, runs_with_suffixes
from ..tools.export.export_format import export_runs
from ..tools.export.exported_run import ExportedRun, exported


def runs_exported(
    investigation: str | None,
    out: Path,
    suffixes: Sequence[str],
    modes: Sequence[str],
    to: str,
    output: Path,
    *,
    force: bool,
) -> list[ExportedRun]:
    """Export runs of an investigation (default: the newest investigation), and return the exported runs.

    Exports the runs of these batches and modes (default: all). If a run has several processes, each process is exported
    separately. Raises UsageError, CollisionError, RunNotFound, ExtraNotFound and JournalError.
    """
    folder = find_investigation(out, investigation, suffixes=() if investigation else suffixes)
    runs = _of_modes(runs_with_suffixes(folder, suffixes), modes, folder)
    runs_to_export = [exported(rank) for run in runs for rank in ranks_of(run)]
    if not any(run.steps for run in runs_to_export):
        names = ", ".join(run.name for run in runs_to_export)
        raise UsageError(f"{folder}: no step of {names} was recorded, so there is nothing to export")
    export_runs(folder.resolve().name, runs_to_export, to, output, force=force)
    return runs_to_export


def _of_modes(runs: Sequence[RecordedRun], modes: Sequence[str], folder: Path) -> list[RecordedRun]:
    """Return the runs in these modes. A mode is stated by its name, its full text or its folder. Raises RunNotFound for
    a mode without a run."""
    names = [(run.manifest.mode, run.manifest.spec, run.path.name) for run in runs]
    for mode in modes:
        if not any(mode in of_run for of_run in names):
            modes_of_runs = dict.fromkeys(run.manifest.mode for run in runs)
            raise RunNotFound(f"{folder} has no run of mode {mode!r}: {nearest(mode, modes_of_runs)}")
    return [run for run, of_run in zip(runs, names, strict=True) if not modes or set(modes) & set(of_run)]
