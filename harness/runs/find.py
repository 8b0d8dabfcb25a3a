"""Finding recorded runs: in a folder, in an investigation, among all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import NumdriftError, RunNotFound, nearest
from .journal import Journal
from .layout import JOURNAL, MANIFEST
from .manifest import RunManifest, read_manifest


@dataclass(frozen=True)
class RecordedRun:
    """A run on disk; its journal is read when it is asked for."""

    path: Path
    manifest: RunManifest

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.path / JOURNAL)


def is_there(path: Path) -> bool:
    """Whether there is a file or folder of that path; nothing has a path that the system refuses."""
    try:
        return path.exists()
    except OSError:
        return False


def load_run(path: Path | str) -> RecordedRun:
    """Read the run in a folder. Raises RunNotFound or JournalError."""
    path = Path(path)
    if not (is_there(path) and path.is_dir()):
        raise RunNotFound(f"there is no run {path}; `numdrift runs list` shows what there is")
    return RecordedRun(path, read_manifest(path))


def runs_in(investigation: Path) -> list[RecordedRun]:
    """The runs of an investigation, in the order in which their batches asked for them.

    Folders whose manifest cannot be read are left out.
    """
    found = []
    for manifest in investigation.glob(f"*/{MANIFEST}"):
        try:
            found.append(load_run(manifest.parent))
        except NumdriftError:
            continue
    return sorted(found, key=lambda run: (run.manifest.started, run.manifest.position, run.path.name))


def investigations(out: Path) -> list[Path]:
    """The folders under `out` that hold runs, the one with the newest run first."""
    if not is_there(out):
        return []
    folders = {manifest.parent.parent for manifest in out.glob(f"*/*/{MANIFEST}")}
    return sorted(folders, key=lambda folder: (_newest(folder), folder.name), reverse=True)


def _newest(folder: Path) -> float:
    return max(manifest.stat().st_mtime for manifest in folder.glob(f"*/{MANIFEST}"))


def find_investigation(out: Path, named: str | None, *, suffixes: Sequence[str] = ()) -> Path:
    """The investigation of that name or path, or without one the newest that has all the suffixes.

    Raises RunNotFound, naming what there is.
    """
    known = investigations(out)
    if named is not None:
        places = (out / named, Path(named))
        for path in places:
            if _holds_runs(path):
                return path
        for path in places:
            if _holds_runs(path.parent):
                runs = [run.path.name for run in runs_in(path.parent)]
                raise RunNotFound(f"{path.parent} has no run {path.name!r}: {nearest(path.name, runs)}")
        names = [path.name for path in known]
        hint = nearest(named, names) if names else f"{out}/ holds none; `numdrift run` makes one"
        raise RunNotFound(f"there is no investigation {named!r}: {hint}")
    for path in known:
        if set(suffixes) <= {run.manifest.suffix for run in runs_in(path)}:
            return path
    wanted = f" with the suffix {' and '.join(suffixes)}" if suffixes else ""
    raise RunNotFound(f"there is no investigation{wanted} in {out}/; `numdrift run` makes one")


def _holds_runs(path: Path) -> bool:
    return is_there(path) and any(path.glob(f"*/{MANIFEST}"))


def runs_with_suffixes(investigation: Path, suffixes: Sequence[str]) -> list[RecordedRun]:
    """The runs of the batches with these suffixes, batch by batch; of all batches when none is given.

    Raises RunNotFound for a suffix that no run has.
    """
    runs = runs_in(investigation)
    known = list(dict.fromkeys(run.manifest.suffix for run in runs))
    for suffix in suffixes:
        if suffix not in known:
            raise RunNotFound(f"{investigation} has no batch {suffix!r}: {nearest(suffix, known)}")
    return [run for suffix in (suffixes or known) for run in runs if run.manifest.suffix == suffix]
