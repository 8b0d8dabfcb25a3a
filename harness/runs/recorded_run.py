"""A recorded run, and functions that find runs: in a folder, in an investigation, among all investigations."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NumdriftError, RunNotFound, UsageError, nearest
from .journal import Journal
from .manifest import RunManifest, read_manifest
from .numpy_values import Array
from .run_layout import JOURNAL, MANIFEST, rank_folder

if TYPE_CHECKING:
    import pandas as pd

DIGEST_COLUMNS = ("min", "max", "mean", "l2", "nan", "inf", "numel", "hash")


@dataclass(frozen=True)
class RecordedRun:
    """A run on disk. The journal is read when it is first used."""

    path: Path
    manifest: RunManifest

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.path / JOURNAL)

    def losses(self) -> pd.Series[float]:
        """Return the loss of each step that has one, as a pandas series by step."""
        losses_by_step = {record.step: record.loss for record in self.journal.steps if record.loss is not None}
        series: pd.Series[float] = pandas().Series(losses_by_step, name=self.manifest.label, dtype="float64")
        return series.rename_axis("step")

    def logged(self) -> pd.DataFrame:
        """Return the values, except for losses, that the script logged with `numdrift.log`.

        The table has a column for each name and a row for each step, with NaN where nothing was logged.
        """
        rows = {record.step: dict(record.logged) for record in self.journal.steps}
        frame: pd.DataFrame = pandas().DataFrame.from_dict(rows, orient="index", dtype="float64")
        return frame.rename_axis("step")

    def digests(self) -> pd.DataFrame:
        """Return a table of digests, with a row for each (tensor, what, step). `what` is "value" or "gradient".

            run.digests().loc["fc.weight", "gradient"]["l2"].plot()

        The columns are min, max, mean, l2, nan, inf, numel and hash. min, max, mean and l2 are those of the finite
        elements. A gradient that does not exist has no row.
        """
        keys: list[tuple[str, str, int]] = []
        rows: list[tuple[Any, ...]] = []
        for step, step_digests in self.journal.digests():
            for kind, digests_by_name in (("value", step_digests.values), ("gradient", step_digests.gradients)):
                for name, digest in digests_by_name.items():
                    if digest is not None:
                        keys.append((name, kind, step))
                        statistics = (digest.minimum, digest.maximum, digest.mean, digest.l2)
                        # The hash is text: nobody calculates with it, and an int64 cannot represent every 64-bit hash.
                        rows.append((*statistics, digest.nan, digest.inf, digest.numel, f"{digest.hash:016x}"))
        # If there are no keys, pandas cannot derive the number of levels of the index.
        by_level: list[Any] = list(zip(*keys, strict=True)) or [[], [], []]
        index = pandas().MultiIndex.from_arrays(by_level, names=["tensor", "what", "step"])
        frame: pd.DataFrame = pandas().DataFrame(rows, index=index, columns=pandas().Index(DIGEST_COLUMNS))
        return frame.sort_index()

    def parameters(self, step: int | None = None) -> dict[str, Array]:
        """Return the parameters and buffers after a step, as read-only arrays.

        If `step` is None, this is the last step whose parameters were kept. Raises UsageError if the step's parameters
        were not kept.
        """
        steps = self.journal.value_steps
        if not steps or (step is not None and step not in steps):
            listed = ", ".join(map(str, steps[:8])) + (f" and {len(steps) - 8} more" if len(steps) > 8 else "")
            if not steps:
                raise UsageError(f"{self.path}: no parameters were kept; record=params keeps them")
            raise UsageError(f"{self.path}: the parameters after step {step} were not kept; kept steps: {listed}")
        return self.journal.values(steps[-1] if step is None else step)


def pandas() -> Any:
    """Import pandas, which only tables need. Commands that make no table start half a second sooner without it."""
    return importlib.import_module("pandas")


def is_there(path: Path) -> bool:
    """Return whether there is a file or folder at this path; False for a path that the operating system refuses."""
    try:
        return path.exists()
    except OSError:
        return False


def load_run(path: Path | str) -> RecordedRun:
    """Read the run in a folder. Raises RunNotFound or JournalError."""
    path = Path(path)
    if not (is_there(path) and path.is_dir()):
        raise RunNotFound(f"there is no run {path}; `numdrift runs list` lists the existing runs")
    return RecordedRun(path, read_manifest(path))


def with_distinct_labels(a: RecordedRun, b: RecordedRun) -> tuple[RecordedRun, RecordedRun]:
    """Return both runs with distinct names.

    If the runs have the same name, each name gets a prefix: the name of the run's investigation or, if these are equal
    too, the path of the investigation's folder.
    """
    if a.manifest.label != b.manifest.label or a.path.resolve() == b.path.resolve():
        return a, b
    folders = [run.path.absolute().parent for run in (a, b)]
    places = [folder.name for folder in folders]
    if places[0] == places[1]:
        places = [str(run.path.parent) for run in (a, b)]
    first, second = (
        replace(run, manifest=replace(run.manifest, place=place)) for run, place in zip((a, b), places, strict=True)
    )
    return first, second


def rank_of(run: RecordedRun, rank: int) -> RecordedRun:
    """Return the run of one rank, given the run of rank 0. Raises RunNotFound or JournalError."""
    return load_run(rank_folder(run.path, rank)) if rank else run


def ranks_of(run: RecordedRun) -> list[RecordedRun]:
    """Return the runs of all ranks in order, `run` itself first. If `run` is not that of rank 0, return only `run`.

    Raises RunNotFound or JournalError.
    """
    return [rank_of(run, rank) for rank in range(run.manifest.world_size if not run.manifest.rank else 1)]


def runs_in(investigation: Path) -> list[RecordedRun]:
    """Return the runs of an investigation, in the order of their batches and, within a batch, of the modes.

    Folders whose manifest cannot be read are left out.
    """
    runs = []
    for manifest in investigation.glob(f"*/{MANIFEST}"):
        try:
            runs.append(load_run(manifest.parent))
        except NumdriftError:
            continue
    return sorted(runs, key=lambda run: (run.manifest.started, run.manifest.position, run.path.name))


def investigations(out: Path) -> list[Path]:
    """Return the folders in `out` that contain runs, ordered by their newest run. The newest comes first."""
    if not is_there(out):
        return []
    newest: dict[Path, float] = {}
    for manifest in out.glob(f"*/*/{MANIFEST}"):
        folder = manifest.parent.parent
        newest[folder] = max(newest.get(folder, 0.0), manifest.stat().st_mtime)
    # Sort by the files' times, then by the folders' names, since all files of a copied folder may have the same time.
    return sorted(newest, key=lambda folder: (newest[folder], folder.name), reverse=True)


def find_investigation(out: Path, named: str | None, *, suffixes: Sequence[str] = ()) -> Path:
    """Return the investigation with the name or path `named`; if that is None, the newest one with all the suffixes.

    If there is none, raises RunNotFound, whose message lists similar names.
    """
    existing = investigations(out)
    if named is not None:
        places = (out / named, Path(named))
        for path in places:
            if _holds_runs(path):
                return path
        for path in places:
            if _holds_runs(path.parent):
                runs = [run.path.name for run in runs_in(path.parent)]
                raise RunNotFound(f"{path.parent} has no run {path.name!r}: {nearest(path.name, runs)}")
        names = [path.name for path in existing]
        hint = nearest(named, names) if names else f"{out}/ contains none; `numdrift run` creates one"
        raise RunNotFound(f"there is no investigation {named!r}: {hint}")
    for path in existing:
        if set(suffixes) <= {run.manifest.suffix for run in runs_in(path)}:
            return path
    wanted = f" with the suffix{'es' * (len(suffixes) > 1)} {' and '.join(suffixes)}" if suffixes else ""
    raise RunNotFound(f"there is no investigation{wanted} in {out}/; `numdrift run` creates one")


def _holds_runs(path: Path) -> bool:
    """Return whether this folder contains runs. A run's folder, which may contain the runs of ranks, is excluded."""
    return is_there(path) and not is_there(path / MANIFEST) and any(path.glob(f"*/{MANIFEST}"))


def runs_with_suffixes(investigation: Path, suffixes: Sequence[str]) -> list[RecordedRun]:
    """Return the runs of the batches with these suffixes, batch by batch; without suffixes, the runs of all batches.

    Raises RunNotFound for a suffix that no run has.
    """
    runs = runs_in(investigation)
    existing = list(dict.fromkeys(run.manifest.suffix for run in runs))
    for suffix in suffixes:
        if suffix not in existing:
            raise RunNotFound(f"{investigation} has no batch {suffix!r}: {nearest(suffix, existing)}")
    return [run for suffix in (suffixes or existing) for run in runs if run.manifest.suffix == suffix]
