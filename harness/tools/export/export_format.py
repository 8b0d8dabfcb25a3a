"""The formats of exports. An export is written atomically."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import CollisionError, UsageError
from ...records.codec import json_text
from ...runs.recorded_run import is_there
from .exported_run import Export, ExportedRun
from .mlflow_store import write_store
from .run_table import write_csv, write_parquet
from .tensorboard_events import write_events
from .wandb_files import write_offline

MARK = "numdrift-export.json"
"""The file that describes an export in its folder. Only a folder with this file is ever replaced."""

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format of exports.

    write: writes an export to its path; if `is_folder`, the path is a folder that already contains MARK
    opened_by: the command that opens the export, with `{}` for the path
    """

    write: Callable[[Export], None]
    is_folder: bool = False
    opened_by: str = ""


FORMATS = {
    "csv": ExportFormat(write_csv),
    "parquet": ExportFormat(write_parquet),
    "tensorboard": ExportFormat(write_events, is_folder=True, opened_by="tensorboard --logdir {}"),
    "mlflow": ExportFormat(
        write_store, is_folder=True, opened_by="MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {}"
    ),
    "wandb": ExportFormat(write_offline, is_folder=True, opened_by="wandb leet {}/wandb"),
}


def export_runs(investigation: str, runs: Sequence[ExportedRun], to: str, output: Path, *, force: bool) -> None:
    """Write runs in one of FORMATS to a path. The path appears only once all runs are written.

    Without `force`, raises CollisionError for an existing path. `force` replaces a file, or a folder that an export
    wrote, but no other folder. Also raises UsageError and ExtraNotFound.
    """
    chosen = FORMATS[to]
    _refuse(output, chosen, force=force)
    written = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if chosen.is_folder:
            written.mkdir()
            facts = {"schema": SCHEMA, "format": to, "investigation": investigation, "runs": [run.name for run in runs]}
            (written / MARK).write_text(json_text(facts), encoding="utf-8")
        chosen.write(Export(investigation, runs, written, output))
        if output.is_dir():
            shutil.rmtree(output)
        written.replace(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from None
    finally:  # remove files that were not moved into place
        shutil.rmtree(written, ignore_errors=True)
        with suppress(OSError):
            written.unlink()


def _refuse(output: Path, chosen: ExportFormat, *, force: bool) -> None:
    if not is_there(output):
        return
    if not force:
        raise CollisionError(output, "choose another --output, or replace it with --force")
    if not output.is_dir() and not output.is_file():
        raise CollisionError(output, "it is not a regular file, so it cannot be replaced; choose another --output")
    if output.is_dir() and not chosen.is_folder:
        raise CollisionError(output, "it is a folder; name a file with --output")
    if output.is_file() and chosen.is_folder:
        raise CollisionError(output, "it is a file; name a folder with --output")
    if chosen.is_folder and not (output / MARK).is_file():
        raise CollisionError(
            output, "it does not come from an export, so --force does not replace it; choose another --output"
        )
