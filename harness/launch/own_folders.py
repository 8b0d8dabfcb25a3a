"""Which folders a run has for itself, what it has written there, and what becomes of it."""

from __future__ import annotations

import getpass
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ..errors import NumdriftError
from ..records.execution_facts import in_mib
from ..records.mode_spec import ModeSpec
from ..records.run_config import RunConfig
from ..records.run_files import OUTSIDE, OwnFolders, RunFiles, WrittenFile
from ..runs.journal import Journal
from ..runs.manifest import read_manifest
from ..runs.run_layout import EVIDENCE, KEPT, WRITTEN
from .batch_plan import BatchPlan

CACHES = (
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "HF_HOME",
    "HF_DATASETS_CACHE", "XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX", "MPLCONFIGDIR",
)  # fmt: skip
"""The variables that name folders of libraries, which are the same for all runs: what is compiled is compiled once."""

UNSEEN = ("__pycache__",)
"""Folders in which Python writes whatever a script does."""

MOST = 1000
"""So many written files are listed one by one."""


def own_folders(plan: BatchPlan, spec: ModeSpec, since: float) -> OwnFolders:
    """What a run has for itself: the current folder, and the script's where that lies elsewhere and is no library's.

    `since` is when the first run of the investigation began.
    """
    here, cached = (plan.folder or Path.cwd()).resolve(), caches()
    ignored = tuple(
        map(str, [plan.investigation.path.resolve(), *(one for one in cached if not here.is_relative_to(one))])
    )
    if plan.in_place or plan.pass_through:
        return OwnFolders(why="it was asked for", ignored=ignored, since=since)
    if sys.platform != "linux":
        why = f"{sys.platform} cannot lay one folder over another"
        return OwnFolders(why=why, ignored=ignored, since=since)
    folder = plan.investigation.run(spec.name, plan.suffix).path.resolve()
    shared = [folder, *cached, Path(tempfile.gettempdir()).resolve()]
    wanted = [here]
    of_script = plan.script.resolve().parent
    if not any(of_script.is_relative_to(one) for one in (here, Path(sys.prefix), Path(sys.base_prefix))):
        wanted = [of_script] if here.is_relative_to(of_script) else [here, of_script]
    for one in wanted:
        # The root of all, and what everybody's files lie in, numdrift's own among them, cannot be a run's own.
        if one == Path(one.anchor) or one in shared:
            why = f"{one} is everybody's: start it in a folder of its own"
            return OwnFolders(why=why, ignored=ignored, since=since)
    shared = [one for one in shared if any(one.is_relative_to(each) for each in wanted)]
    # An overlay does not show what is mounted below it: that is laid over in its turn.
    mounted = [
        one
        for one in mount_points()
        if any(each in one.parents for each in wanted)
        and not any(one.is_relative_to(each) for each in shared)
        and one.is_dir()
    ]
    return OwnFolders(
        folders=tuple(map(str, [*wanted, *mounted])),
        shared=tuple(map(str, shared)),
        ignored=ignored,
        written=str(folder / WRITTEN),
        since=since,
    )


def mount_points() -> list[Path]:
    """What something is mounted at, sorted, so that the outer comes before the inner."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    # a blank in a path is written \\040
    return sorted({Path(os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))) for line in lines})


def caches() -> list[Path]:
    """Folders that libraries share between processes."""
    found = [Path(os.environ[name]) for name in CACHES if os.environ.get(name)]
    with suppress(RuntimeError):  # a user without a home, and one without a name, as containers have them
        found += [Path.home() / ".cache", Path.home() / ".triton"]
    with suppress(KeyError, OSError):
        found.append(Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}"))
    return [one.resolve() for one in found]


def began(investigation: Path) -> float:
    """When the first run of the investigation began, as `time.time()` has it; now where there is none."""
    first = time.time()
    top = investigation.parent if investigation.name == EVIDENCE else investigation
    for manifest in top.glob("*/run.json"):
        with suppress(NumdriftError, ValueError):
            first = min(first, datetime.fromisoformat(read_manifest(manifest.parent).started).timestamp())
    return first


def run_files(config: RunConfig, journal: Journal) -> RunFiles:
    """What became of the files of a run that has ended. Temporary files that are gone again are no files of it."""
    said = next(iter(journal.events("files")), {})
    written, more = written_files(config.files)
    outside: dict[str, WrittenFile] = {}
    for event in journal.events(OUTSIDE):
        path = Path(str(event["path"]))
        if event["what"] == "written" and path.is_file():
            outside[str(path)] = WrittenFile(str(path), path.stat().st_size)
        elif event["what"] == "removed" and not path.exists() and not path.is_relative_to(tempfile.gettempdir()):
            outside[str(path)] = WrittenFile(str(path), 0, "removed")
    return RunFiles(
        own=said.get("own") is True,
        why=str(said.get("why", "")),
        written=tuple(written),
        more=more,
        kept=config.keep_files,
        outside=tuple(sorted(outside.values(), key=lambda one: one.path)),
        read=tuple(str(event["path"]) for event in journal.events(OUTSIDE) if event["what"] == "read"),
    )


def written_files(files: OwnFolders) -> tuple[list[WrittenFile], int]:
    """What a run has written to its own folders, sorted by path, and how many files beyond `MOST` there are.

    Paths are relative to the first folder where they lie in it, absolute elsewhere.
    """
    found: list[WrittenFile] = []
    for number, folder in enumerate(files.folders):
        upper = Path(files.written, str(number), "files")
        for where, folders, names in os.walk(upper):
            folders[:] = [one for one in folders if one not in UNSEEN]
            before = Path(folder, Path(where).relative_to(upper))
            for name in names:
                there, was = Path(where, name).lstat(), before / name
                said = _shown(was, files.folders[0])
                if _is_gone(there):
                    found.append(WrittenFile(said, 0, "removed"))
                else:
                    found.append(WrittenFile(said, there.st_size, "changed" if os.path.lexists(was) else "written"))
            # A folder that was removed and made again hides all that was in it.
            if _is_made_again(where):
                gone = (Path(at, name) for at, _, inside in os.walk(before) for name in inside)
                kept = (path for path in gone if not os.path.lexists(Path(where, path.relative_to(before))))
                found += [WrittenFile(_shown(path, files.folders[0]), 0, "removed") for path in kept]
    found.sort(key=lambda one: one.path)
    return found[:MOST], max(0, len(found) - MOST)


def _shown(path: Path, folder: str) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _is_made_again(folder: str) -> bool:
    """Whether an overlay shows of this folder nothing of what was there before it."""
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with suppress(OSError):  # it has no such mark, or we may not read it
            return os.getxattr(folder, name) == b"y"
    return False


def _is_gone(there: os.stat_result) -> bool:
    """Whether this is an overlay's mark for what is there no longer: a device of the numbers 0, 0."""
    return stat.S_ISCHR(there.st_mode) and there.st_rdev == 0


def keep_written(run: Path, files: OwnFolders) -> None:
    """Put what the run in a folder has written to its own folders into its `files`."""
    kept = run / KEPT
    for number, folder in enumerate(files.folders):
        upper = Path(files.written, str(number), "files")
        for where, _, names in os.walk(upper):
            for path in (Path(where, name) for name in names):
                if _is_gone(path.lstat()):
                    path.unlink()  # nothing but a mark
        if upper.is_dir() and any(upper.iterdir()):
            inside = Path(folder).is_relative_to(files.folders[0])
            target = kept / (Path(folder).relative_to(files.folders[0]) if inside else Path(folder).name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():  # what lies below the first folder has a place in it already
                shutil.copytree(upper, target, symlinks=True, dirs_exist_ok=True)
            else:
                upper.rename(target)
    throw_away(run)


def throw_away(run: Path) -> None:
    """Remove what the run in a folder has written to its own folders. Its processes have ended."""
    written = run / WRITTEN
    for path in written.glob("*/work/work"):
        with suppress(OSError):
            path.chmod(0o700)  # an overlay leaves a folder that nobody may read
    shutil.rmtree(written, ignore_errors=True)


def in_words(files: Sequence[WrittenFile], more: int) -> str:
    """`wrote out/ckpt.pt (12.0 MiB), log.txt and 3 more files, removed old.txt`, the largest first."""
    there = sorted((one for one in files if one.what != "removed"), key=lambda one: -one.size)
    gone = [one.path for one in files if one.what == "removed"]
    names = [f"{one.path} ({in_mib(one.size)})" if one.size > 100 else one.path for one in there]
    said = []
    for what, listed, beyond in (("wrote", names, more), ("removed", gone, 0)):
        if listed:
            rest = len(listed[3:]) + beyond
            more_files = f" and {rest:,} more {'file' if rest == 1 else 'files'}" if rest else ""
            said.append(f"{what} {', '.join(listed[:3])}{more_files}")
    return ", ".join(said)
