"""The files of a run that has a working folder of its own. Standard library only: the process of a script reads this.

/home/me/train      the script's view: everything as it was when the run began, and what it writes itself
runs/train/cpu      its writes go here, into `written/`, and nobody else sees them
"""

from __future__ import annotations

from dataclasses import dataclass

OUTSIDE = "outside-file"
"""The event of a journal for a file outside of the run's own folders."""

READY = "ready.json"
"""The file that rank 0 writes beside the folders when they are in place: with it the other ranks find theirs."""


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """Folders that a run sees as they were; nobody else sees what it writes there.

    `folders` are those folders, none within another. `shared` are folders within them that are shared nevertheless
    (numdrift's own, caches), and `ignored` are folders whose writes do not matter. Writes to the folder number N go to
    `written`/N. `since` is the time, as `time.time()` returns it, at which the first run of the investigation began: a
    file that is younger and not the run's own was written by another run, or beside it. With `why` the folders are
    shared, for that reason."""

    folders: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    written: str = ""
    since: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a run wrote.

    It has the path as the script sees it, its size in bytes (0 if it no longer exists), and whether it was `written`
    anew, `changed`, or `removed`.
    """

    path: str
    size: int = 0
    what: str = "written"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The fate of a run's files.

    `own` says whether its folders were its own, and `why` why not. `written` are the files that it has written there
    (and the number of `more` files), `kept` says whether they were kept. `outside` are the files that it has written
    elsewhere, and `read` those that are younger than the investigation's first run and not the run's own.
    """

    own: bool = False
    why: str = ""
    written: tuple[WrittenFile, ...] = ()
    more: int = 0
    kept: bool = False
    outside: tuple[WrittenFile, ...] = ()
    read: tuple[str, ...] = ()
