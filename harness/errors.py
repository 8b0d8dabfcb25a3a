"""The errors that numdrift raises on purpose.

    NumdriftError                 exit 3 unless stated otherwise
    ├── UsageError                exit 2: the input names something that does not exist or makes no sense
    │   ├── ModeError             a mode specification
    │   ├── CollisionError        an output that exists already
    │   ├── RunNotFound           a run, investigation or batch that does not exist
    │   ├── GraphsNotFound        graphs that a run did not record, or does not have
    │   ├── MetricsNotFound       metrics that a run did not record
    │   ├── KernelNotFound        an op or a kernel that does not exist
    │   ├── ExtraNotFound         a missing library that one of numdrift's extras installs
    │   ├── SnapshotError         a snapshot that cannot be read or executed
    │   ├── PartitionError        a module that cannot be partitioned within the limits (a ValueError, too)
    │   └── CompileError          a kernel's source that does not compile
    ├── JournalError              a recorded file that cannot be read
    ├── AdoptionError             the script does not do what its mode needs
    ├── KernelError               a kernel that raised, or returned what its op never returns
    ├── WorkerError               a worker that answers with an error
    │   └── WorkerGone            a worker that no longer answers
    ├── TaskGone                  a task of a run on several machines that no longer writes to the shared folder
    ├── AlreadyPatched            a name of torch that two parts of numdrift would replace at the same time
    └── NotAvailable              a mode, hook or tool that this machine or torch version lacks

A message names the problem and the remedy on one line; the command line prints it unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class NumdriftError(Exception):
    """The base class of these errors."""

    exit_code = 3


class UsageError(NumdriftError):
    """Wrong usage: a mistake in the command or in a file that it names."""

    exit_code = 2


class ModeError(UsageError):
    """A mode specification that cannot be used.

    `spec` is the text of the specification, `part` its wrong part.
    """

    def __init__(self, spec: str, part: str, why: str) -> None:
        super().__init__(f"mode {spec!r}: {why}")
        self.spec = spec
        self.part = part


class CollisionError(UsageError):
    """An output that exists already and is replaced only with `--force`."""

    def __init__(self, path: Path, remedy: str) -> None:
        super().__init__(f"{path} exists already: {remedy}")
        self.path = path


class RunNotFound(UsageError):
    """A run, an investigation or a batch that does not exist."""


class GraphsNotFound(UsageError):
    """Graphs that a run did not record, or does not have."""


class MetricsNotFound(UsageError):
    """Metrics that a run did not record."""


class KernelNotFound(UsageError):
    """An op that torch does not have, or a kernel that the op does not have."""


class ExtraNotFound(UsageError):
    """A `library` that cannot be imported and that `numdrift[extra]` installs."""

    def __init__(self, library: str, extra: str, why: str) -> None:
        reason = " ".join(why.split())
        super().__init__(f"{library} cannot be imported ({reason}): pip install 'numdrift[{extra}]'")
        self.library = library
        self.extra = extra


class PartitionError(UsageError, ValueError):
    """A module whose partition violates a limit.

    `limit` is the setting's name, `found` the actual value, and `allowed` the largest or smallest value that is
    allowed.
    """

    def __init__(self, message: str, limit: str, found: float, allowed: float) -> None:
        super().__init__(message)
        self.limit = limit
        self.found = found
        self.allowed = allowed


class SnapshotError(UsageError):
    """A snapshot that cannot be read or executed on this machine; `path` is the file."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class CompileError(UsageError):
    """Source that does not compile: `path` is the file, `complaint` the compiler's first error."""

    def __init__(self, path: Path, complaint: str) -> None:
        super().__init__(f"{path} does not compile: {complaint}")
        self.path = path
        self.complaint = complaint


class JournalError(NumdriftError):
    """A recorded file that cannot be read; `path` is the file."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class AdoptionError(NumdriftError):
    """The script does not do what its mode needs; for example, it ignores the mode's device."""


class KernelError(NumdriftError):
    """A kernel that failed while a script or the lab used it; `kernel` is `op=name`."""

    def __init__(self, kernel: str, why: str) -> None:
        super().__init__(f"kernel {kernel} {why}")
        self.kernel = kernel


class WorkerError(NumdriftError):
    """A worker that could not execute a request; `name` is the run, `reason` the worker's explanation."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the process of {name}: {reason}")
        self.name = name
        self.reason = reason


class WorkerGone(WorkerError):
    """A worker whose process has ended or no longer answers."""


class TaskGone(NumdriftError):
    """A task that no longer writes to the folder that it shares with the others; `rank` is its number."""

    def __init__(self, rank: int, host: str) -> None:
        super().__init__(
            f"rank {rank} on {host or 'another machine'} no longer writes to the shared folder: its numdrift has "
            "ended, or its machine cannot be reached"
        )
        self.rank = rank
        self.host = host


class AlreadyPatched(NumdriftError):
    """A name of a library that `owner` was about to replace, but that `other` has already replaced."""

    def __init__(self, name: str, owner: str, other: str) -> None:
        super().__init__(
            f"{name} is already replaced by {other}; {owner} cannot replace it until {other} has restored it"
        )
        self.name = name
        self.owner = owner
        self.other = other


class NotAvailable(NumdriftError):
    """A feature that this machine or this torch version lacks, with the `remedy` if there is one."""

    def __init__(self, what: str, why: str, remedy: str = "") -> None:
        super().__init__(f"{what} is not available: {why}" + (f" ({remedy})" if remedy else ""))
        self.what = what
        self.why = why
        self.remedy = remedy


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the end of an error message: the closest of the words, if one is close, and the list of all words."""
    choices = sorted(words)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    listed = ", ".join(choices)
    return f"did you mean {close[0]!r}? (known: {listed})" if close else f"known: {listed}"
