"""The files of a run that has private folders.

/home/me/train      the script sees this folder as it was when the run began, plus the files that it writes itself
runs/train/cpu      the script's writes go to the folder `written` in this folder, and no other process sees them

This module uses only the standard library, since the process of a script uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

OUTSIDE = "outside-file"
"""The journal's event for a file outside of the run's own folders."""

READY = "ready.json"
"""The file that rank 0 writes beside the private folders once they exist. The other ranks find the folders with it."""


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """Folders that a run sees as they were when it began. No other process sees the files that the run writes there.

    folders: these folders; none is within another
    shared: folders within `folders` that the run shares with other processes: numdrift's own, and caches
    ignored: folders in which writes do not matter
    written: the folder for the files that the run writes; what it writes to folder number N goes to `written`/N
    since: the time, as from `time.time()`, at which the first run of the investigation began; a younger file that is
        not the run's own was written by another run, or by another program during the investigation
    why: the reason why the run has no private folders, "" if it has them
    """

    folders: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    written: str = ""
    since: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a run wrote, changed or removed.

    path: the file's path as the script sees it
    size: the size in bytes, 0 if the file no longer exists
    what: "written" (a new file), "changed" or "removed"
    """

    path: str
    size: int = 0
    what: str = "written"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """A record of what happened to a run's files.

    own: whether the run had private folders
    why: the reason why it had none
    written: the files that it wrote to its private folders
    more: the number of further files that it wrote to them, which are not listed
    kept: whether the files in its private folders were kept
    outside: the files that it wrote elsewhere
    read: the files that it read, that are not its own and that are younger than the investigation's first run
    """

    own: bool = False
    why: str = ""
    written: tuple[WrittenFile, ...] = ()
    more: int = 0
    kept: bool = False
    outside: tuple[WrittenFile, ...] = ()
    read: tuple[str, ...] = ()
