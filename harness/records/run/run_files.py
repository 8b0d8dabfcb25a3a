"""The files of a run that has a separate working folder. Standard library only, since the process of a script uses it.

/home/me/train      the script's view: everything as it was when the run began, and what it writes itself
runs/train/cpu      its writes go here, into `written/`, and no other process sees them
"""

from __future__ import annotations

from dataclasses import dataclass

OUTSIDE = "outside-file"
"""The journal's event for a file outside of the run's own folders."""

READY = "ready.json"
"""The file that rank 0 writes beside the folders once they are in place; the other ranks find their folders by it."""


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """Folders that a run sees as they were when it began. No other process sees the files that it writes there.

    folders: these folders, none within another
    shared: folders within them that are shared nevertheless: numdrift's own, and caches
    ignored: folders whose writes do not matter
    written: the folder for what the run writes; writes to the folder number N go to `written`/N
    since: the time, as from `time.time()`, at which the first run of the investigation began; a younger file that is
        not the run's own was written by another run, or by another program during the investigation
    why: the reason why the folders are shared after all, "" if they are not
    """

    folders: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    written: str = ""
    since: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a run wrote: its path as the script sees it, and its size in bytes (0 if it no longer exists).

    It was `written` anew, `changed`, or `removed`.
    """

    path: str
    size: int = 0
    what: str = "written"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The fate of a run's files.

    own: whether the run had private folders
    why: the reason why it had none
    written: the files that it wrote there
    more: the number of further files that it wrote there
    kept: whether the written files were kept
    outside: the files that it wrote elsewhere
    read: the files that it read although they are younger than the investigation's first run and not the run's own
    """

    own: bool = False
    why: str = ""
    written: tuple[WrittenFile, ...] = ()
    more: int = 0
    kept: bool = False
    outside: tuple[WrittenFile, ...] = ()
    read: tuple[str, ...] = ()
