"""The files of a run that has a working folder of its own. Standard library only: the process of a script reads this.

/home/me/train      what the script sees there: everything as it was when the run began, and what it writes itself
runs/train/cpu      what it writes goes here, into `written/`, and nobody else sees it
"""

from __future__ import annotations

from dataclasses import dataclass

OUTSIDE = "outside-file"
"""The event of a journal for a file outside of the run's own folders."""

READY = "ready.json"
"""What rank 0 writes beside the folders when they are in place: by it the other ranks find theirs."""


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """Folders that a run sees as they were, and of which nobody sees what it writes there.

    `folders` are those folders, none within another. `shared` are folders within them that are everybody's all the same
    (numdrift's own, caches), and of `ignored` nobody wants to know what is written there. What is written to the folder
    number N goes to `written`/N. `since` is the time, as `time.time()` has it, at which the first run of the
    investigation began: a file that is younger and not the run's own was written by another run, or beside it. With
    `why` the folders are everybody's, for that reason."""

    folders: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    written: str = ""
    since: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a run wrote: its path as the script sees it, its size in bytes (0 where it is gone), and whether it
    was `written` anew, `changed`, or `removed`."""

    path: str
    size: int = 0
    what: str = "written"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What became of the files of a run: whether its folders were its `own`, and `why` not; what it has `written` there
    (and how many `more` files), and whether that was `kept`. `outside` is what it has written elsewhere, and `read`
    are the files there that are younger than the investigation's first run and not the run's own."""

    own: bool = False
    why: str = ""
    written: tuple[WrittenFile, ...] = ()
    more: int = 0
    kept: bool = False
    outside: tuple[WrittenFile, ...] = ()
    read: tuple[str, ...] = ()
