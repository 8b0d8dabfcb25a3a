"""The folder of an investigation, the folders of its runs, and the names that these folders may have."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..errors import CollisionError, UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MANIFEST = "run.json"
JOURNAL = "journal"
STATES = "states"
WRITTEN, KEPT = "written", "files"
"""Two folders inside a run's folder: the first for the files that the script writes while it runs, the second for the
files that are kept."""

EVIDENCE = "evidence"
"""The name of the folder, beside an investigation's runs, that contains the folders of its experiments."""

BATCH_PLOTS, PAIR_PLOTS = ("loss_curve", "loss_drift", "timeline"), ("drift", "envelope")
"""The kinds of plots: the first of batches of runs, the second of pairs of modes."""


def own_cache(what: str) -> Path:
    """Return numdrift's folder for things that many investigations use, such as `revisions`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numdrift" / what


def check_name(option: str, text: str) -> str:
    """Return a name unchanged. Raises UsageError, which names `option`, if the name cannot be part of a file name."""
    if not NAME.fullmatch(text):
        raise UsageError(
            f"{option} {text!r} cannot be part of a file name: "
            "use letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return text


def rank_folder(run: Path, number: int) -> Path:
    """Return the folder of a rank's files. For rank 0 it is the run's folder, for any other rank a folder in that."""
    return run / f"rank{number}" if number else run


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, and the pickle beside it."""

    path: Path
    pickle: Path

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def stdout(self) -> Path:
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.path / "stderr.log"

    def rank(self, number: int) -> RunFolder:
        """Return the folder of one rank of the run. For rank 0 it is the run's folder itself."""
        if not number:
            return self
        path = rank_folder(self.path, number)
        return RunFolder(path, path / self.pickle.name)

    def create(self, *, force: bool) -> None:
        """Create the empty folder. Raises CollisionError if the folder or the pickle exists, unless `force` is set."""
        if force and self.manifest.exists():  # a folder without a manifest is not a run's, and must not be removed
            shutil.rmtree(self.path)
        if force:
            self.pickle.unlink(missing_ok=True)
        self.refuse_collision()
        try:
            self.journal.mkdir(parents=True)
        except FileExistsError:  # another command has created it since
            self.refuse_collision()
            raise

    def refuse_collision(self) -> None:
        for path in (self.path, self.pickle):
            if path.exists():
                raise CollisionError(path, "choose another suffix or name, or replace it with --force")


@dataclass(frozen=True, slots=True)
class InvestigationFolder:
    """A folder of runs of one script. This class only builds paths: it neither reads nor writes anything."""

    path: Path

    def run(self, mode: str, suffix: str) -> RunFolder:
        tag = f"_{suffix}" if suffix else ""
        return RunFolder(self.path / f"{mode}{tag}", self.path / f"verify_{mode}{tag}.pkl")

    def plot(self, suffixes: tuple[str, ...], kind: str) -> Path:
        """Return the path of a plot, without a file extension. `kind` is one of `BATCH_PLOTS` or `PAIR_PLOTS`."""
        assert kind in BATCH_PLOTS + PAIR_PLOTS
        tag = "_vs_".join(suffix for suffix in suffixes if suffix)
        return self.path / (f"{tag}_{kind}" if tag else kind)


def choose_investigation(out: Path, script: Path, name: str | None, suffix: str) -> InvestigationFolder:
    """Choose the folder for new runs: the folder `name` in `out` or, without a name, one named after the script.

    If there is neither a name nor a suffix, a new folder is chosen every time: sam_tanh, sam_tanh-2, and so on.
    """
    if name is not None:
        return InvestigationFolder(out / check_name("--name", name))
    # With a suffix, the batch is kept beside other batches in the folder that is named after the script.
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", script.stem).lstrip("._-") or "investigation"
    if suffix:
        return InvestigationFolder(out / stem)
    count, path = 1, out / stem
    while path.exists():
        count += 1
        path = out / f"{stem}-{count}"
    return InvestigationFolder(path)
