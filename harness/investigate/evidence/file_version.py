"""A file about a step of a run, as a key of a cache: a file that is written again has a different key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...runs.step_outcomes import exact_path, outcome_path


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A version of a file of a run: `written` in nanoseconds and `size` in bytes are 0 if the file does not exist."""

    run: Path
    written: int
    size: int

    @classmethod
    def of_outcome(cls, run: Path, step: int) -> FileVersion:
        return cls._of(run, outcome_path(run, step))

    @classmethod
    def of_exact(cls, run: Path, step: int) -> FileVersion:
        return cls._of(run, exact_path(run, step))

    @classmethod
    def _of(cls, run: Path, path: Path) -> FileVersion:
        file_stat = path.stat() if path.exists() else None
        return cls(run, file_stat.st_mtime_ns, file_stat.st_size) if file_stat else cls(run, 0, 0)
