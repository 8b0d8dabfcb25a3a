"""The private folders of a run, and the files that the run wrote to them, which are kept or removed after the run."""

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
from ..records.modes.mode_spec import ModeSpec
from ..records.run.execution_facts import in_mib
from ..records.run.run_config import RunConfig
from ..records.run.run_files import OUTSIDE, OwnFolders, RunFiles, WrittenFile
from ..runs.journal import Journal
from ..runs.manifest import read_manifest
from ..runs.run_layout import EVIDENCE, KEPT, WRITTEN
from .batch_plan import BatchPlan

CACHES = (
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "HF_HOME",
    "HF_DATASETS_CACHE", "XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX", "MPLCONFIGDIR",
)  # fmt: skip
"""Variables that name folders of libraries. All runs share these folders, so that nothing is compiled twice."""

UNSEEN = ("__pycache__",)
"""Folders that Python itself writes, whatever a script does."""

MOST = 1000
"""Maximum number of written files that are listed one by one."""


def own_folders(plan: BatchPlan, spec: ModeSpec, since: float) -> OwnFolders:
    """Return the private folders of a run.

    They are the current folder, and the script's folder if that is outside of the current folder and of a Python
    installation. `since` is the time at which the first run of the investigation began.
    """
    place = plan.place(spec)
    current_folder, cached = place.folder.resolve(), caches()
    ignored = tuple(
        map(
            str,
            [
                plan.investigation.path.resolve(),
                *(cache for cache in cached if not current_folder.is_relative_to(cache)),
            ],
        )
    )
    if plan.in_place or plan.pass_through:
        return OwnFolders(why="it was requested", ignored=ignored, since=since)
    if plan.machines > 1:
        why = "its ranks run on several machines, which share your folder"
        return OwnFolders(why=why, ignored=ignored, since=since)
    if sys.platform != "linux":
        why = f"overlay folders need Linux, and this is {sys.platform}"
        return OwnFolders(why=why, ignored=ignored, since=since)
    folder = plan.investigation.run(spec.name, plan.suffix).path.resolve()
    shared = [folder, *cached, Path(tempfile.gettempdir()).resolve()]
    wanted = [current_folder]
    of_script = place.script.resolve().parent
    if not any(
        of_script.is_relative_to(parent) for parent in (current_folder, Path(sys.prefix), Path(sys.base_prefix))
    ):
        wanted = [of_script] if current_folder.is_relative_to(of_script) else [current_folder, of_script]
    if place.beside is not None and not any(place.beside.is_relative_to(root) for root in wanted):
        wanted.append(place.beside)
    for candidate in wanted:
        # The root, and folders that contain files of several users or of numdrift itself, cannot become private.
        if candidate == Path(candidate.anchor) or candidate in shared:
            why = f"{candidate} is shared with others; start the script in another folder"
            return OwnFolders(why=why, ignored=ignored, since=since)
    shared = [path for path in shared if any(path.is_relative_to(root) for root in wanted)]
    # The overlay of a folder does not show the mounts inside the folder: each mount gets its own overlay.
    mounted = [
        mount
        for mount in mount_points()
        if any(root in mount.parents for root in wanted)
        and not any(mount.is_relative_to(path) for path in shared)
        and mount.is_dir()
    ]
    return OwnFolders(
        folders=tuple(map(str, [*wanted, *mounted])),
        shared=tuple(map(str, shared)),
        ignored=ignored,
        written=str(folder / WRITTEN),
        since=since,
    )


def mount_points() -> list[Path]:
    """Return the mount points, sorted so that an outer one comes before an inner one."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    # A space in a path is written as \040.
    return sorted({Path(os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))) for line in lines})


def caches() -> list[Path]:
    """Return the folders that libraries share between processes."""
    folders = [Path(os.environ[name]) for name in CACHES if os.environ.get(name)]
    with suppress(RuntimeError):  # a user without a home or without a name, as in containers
        folders += [Path.home() / ".cache", Path.home() / ".triton"]
    with suppress(KeyError, OSError):
        folders.append(Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}"))
    return [folder.resolve() for folder in folders]


def began(investigation: Path) -> float:
    """Return the time at which the investigation's first run began, as `time.time()`.

    Return the current time if there is no run.
    """
    earliest = time.time()
    top = investigation.parent if investigation.name == EVIDENCE else investigation
    for manifest in top.glob("*/run.json"):
        with suppress(NumdriftError, ValueError):
            earliest = min(earliest, datetime.fromisoformat(read_manifest(manifest.parent).started).timestamp())
    return earliest


def run_files(config: RunConfig, journal: Journal) -> RunFiles:
    """Describe the files of a run that has ended. Temporary files that no longer exist are left out."""
    files_event = next(iter(journal.events("files")), {})
    written, more = written_files(config.files)
    outside: dict[str, WrittenFile] = {}
    for event in journal.events(OUTSIDE):
        path = Path(str(event["path"]))
        if event["what"] == "written" and path.is_file():
            outside[str(path)] = WrittenFile(str(path), path.stat().st_size)
        elif event["what"] == "removed" and not path.exists() and not path.is_relative_to(tempfile.gettempdir()):
            outside[str(path)] = WrittenFile(str(path), 0, "removed")
    return RunFiles(
        own=files_event.get("own") is True,
        why=str(files_event.get("why", "")),
        written=tuple(written),
        more=more,
        kept=config.keep_files,
        outside=tuple(sorted(outside.values(), key=lambda file: file.path)),
        read=tuple(str(event["path"]) for event in journal.events(OUTSIDE) if event["what"] == "read"),
    )


def written_files(files: OwnFolders) -> tuple[list[WrittenFile], int]:
    """Return the files that a run wrote to its private folders, sorted by path, and the number of files beyond `MOST`.

    Paths are relative to the first folder if they are in it, otherwise absolute.
    """
    written: list[WrittenFile] = []
    for number, folder in enumerate(files.folders):
        upper = Path(files.written, str(number), "files")
        for directory, folders, names in os.walk(upper):
            folders[:] = [subfolder for subfolder in folders if subfolder not in UNSEEN]
            before = Path(folder, Path(directory).relative_to(upper))
            for name in names:
                status, original = Path(directory, name).lstat(), before / name
                shown = _shown(original, files.folders[0])
                if _is_gone(status):
                    written.append(WrittenFile(shown, 0, "removed"))
                else:
                    written.append(
                        WrittenFile(shown, status.st_size, "changed" if os.path.lexists(original) else "written")
                    )
            # A folder that was removed and created again hides everything that was in it before.
            if _is_made_again(directory):
                hidden = (Path(at, name) for at, _, inside in os.walk(before) for name in inside)
                removed = (path for path in hidden if not os.path.lexists(Path(directory, path.relative_to(before))))
                written += [WrittenFile(_shown(path, files.folders[0]), 0, "removed") for path in removed]
    written.sort(key=lambda file: file.path)
    return written[:MOST], max(0, len(written) - MOST)


def _shown(path: Path, folder: str) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _is_made_again(folder: str) -> bool:
    """Check whether an overlay hides the earlier content of this folder."""
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with suppress(OSError):  # the folder has no such mark, or may not be read
            return os.getxattr(folder, name) == b"y"
    return False


def _is_gone(status: os.stat_result) -> bool:
    """Recognize an overlay's mark for a file that no longer exists: a device with the numbers 0, 0."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def keep_written(run: Path, files: OwnFolders) -> None:
    """Move the files that a run wrote to its private folders into the folder `files` of the run."""
    kept_folder = run / KEPT
    for number, folder in enumerate(files.folders):
        upper = Path(files.written, str(number), "files")
        for directory, _, names in os.walk(upper):
            for path in (Path(directory, name) for name in names):
                if _is_gone(path.lstat()):
                    path.unlink()  # the mark of a removed file
        if upper.is_dir() and any(upper.iterdir()):
            inside = Path(folder).is_relative_to(files.folders[0])
            target = kept_folder / (Path(folder).relative_to(files.folders[0]) if inside else Path(folder).name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():  # the first folder's files already include this folder
                shutil.copytree(upper, target, symlinks=True, dirs_exist_ok=True)
            else:
                upper.rename(target)
    throw_away(run)


def throw_away(run: Path) -> None:
    """Remove the files that a run wrote to its private folders. Its processes must have ended."""
    written = run / WRITTEN
    for path in written.glob("*/work/work"):
        with suppress(OSError):
            path.chmod(0o700)  # an overlay leaves a folder without any permissions
    shutil.rmtree(written, ignore_errors=True)


def in_words(files: Sequence[WrittenFile], more: int) -> str:
    """Return a phrase such as `wrote out/ckpt.pt (12.0 MiB), log.txt and 3 more files, removed old.txt`.

    The largest files come first.
    """
    written = sorted((file for file in files if file.what != "removed"), key=lambda file: -file.size)
    removed = [file.path for file in files if file.what == "removed"]
    names = [f"{file.path} ({in_mib(file.size)})" if file.size > 100 else file.path for file in written]
    phrases = []
    for verb, listed, beyond in (("wrote", names, more), ("removed", removed, 0)):
        if listed:
            unlisted = len(listed[3:]) + beyond
            more_files = f" and {unlisted:,} more {'file' if unlisted == 1 else 'files'}" if unlisted else ""
            phrases.append(f"{verb} {', '.join(listed[:3])}{more_files}")
    return ", ".join(phrases)
