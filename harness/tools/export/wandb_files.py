"""Runs as offline files of Weights & Biases, with a W&B run for each run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .exported_run import Export, ExportedRun
from .optional_library import library_settings, optional_library


def write_offline(export: Export) -> None:
    """Write `wandb/offline-run-*` with W&B's own library, for upload by `wandb sync`.

    The project is named after the investigation. Each run has its history by step, and its mode, script, arguments and
    torch version as config.

    Nothing leaves the machine: the mode is offline, and the library's error reports, which look up a host at start, are
    off. Each number in the history is written as JSON text that preserves all its 64 bits, and NaN and infinities as
    `NaN`, `Infinity` and `-Infinity`. The library's own logs are removed. Raises OSError, UsageError and ExtraNotFound.
    """
    with tempfile.TemporaryDirectory() as logs:
        own = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
        with library_settings("WANDB_", own | {"WANDB_CACHE_DIR": logs, "WANDB_CONFIG_DIR": logs}):
            library = optional_library("wandb", "wandb")
            try:
                for run in export.runs:
                    _write_run(library, export, run)
            except library.Error as error:
                raise UsageError(f"W&B refuses {export.investigation}: {' '.join(str(error).split())}") from error
    _remove_logs(export.path / "wandb")


def _write_run(library: Any, export: Export, run: ExportedRun) -> None:
    settings = library.Settings(
        mode="offline",
        root_dir=str(export.path),
        reinit="create_new",  # the user's own run in this process continues
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    group = run.suffix or None
    made = library.init(
        project=export.investigation, name=run.name, group=group, config=dict(run.facts), settings=settings
    )
    for step in run.steps:
        made.log(run.scalars(step) | {"_timestamp": run.began + step.seconds}, step=step.step)
    made.finish(exit_code=0 if run.status in ("complete", "running") else 1)


def _remove_logs(folder: Path) -> None:
    """Remove the library's own logs, and the links to them."""
    for link in folder.glob("debug*.log"):
        link.unlink()
    for run in folder.glob("offline-run-*"):
        for what in ("logs", "tmp"):
            shutil.rmtree(run / what, ignore_errors=True)
