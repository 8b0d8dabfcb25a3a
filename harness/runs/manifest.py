"""`run.json`: the request for a run, and how the run ended. Schema 1."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import NumdriftError, RunNotFound
from ..records.codec import NOT_WRITTEN, UNCHECKED, UNLESS_EMPTY, FileForm, json_text, of_fields, put
from ..records.frames import REFUSED
from ..records.results.experiment import Experiment
from ..records.run.run_files import RunFiles
from .run_layout import MANIFEST, RunFolder

SCHEMA = 1
INTERRUPTED = "interrupted"
ABANDONED = "numdrift ended before the run did"
STATUSES = ("running", "complete", "crashed", REFUSED, "killed", "timeout", "nonfinite", "out-of-memory")


@dataclass(frozen=True, slots=True)
class RunManifest:
    """One run.

    steps: the number of steps that were recorded
    seconds: the wall time of the process
    position: the position of the run's mode among the modes of its batch
    pid: the id of the numdrift process that watches the run
    host: the machine of that process, if the ranks run on several machines
    rank, world_size: the rank of this process among the processes of the run; the manifest of rank 0 is the run's
    ranks: how each of several ranks ended
    agreement: whether the ranks have the same parameters
    swaps: the swapped kernels, with the number of calls of each by phase
    problems: how the run differs from the run that was requested
    place: the words before the run's name when runs of several folders are compared
    files: the fate of the files that the run wrote
    in_process: whether this is a run of `numdrift.record`, for which no process can be started again
    experiment: the experiment that the run belongs to, None if it belongs to none
    elsewhere: the archive that the run was unpacked from, "" if it was trained here
    revision: the commit of the script's repository that the mode states, "" if it states none
    """

    mode: str
    spec: str
    suffix: str
    reproducer: str
    script_sha256: str
    arguments: Sequence[str]
    record: str
    started: str
    position: int
    pickle: str
    status: str = "running"
    message: str = ""
    steps: int = 0
    seconds: float = 0.0
    exit_code: int | None = None
    pid: int | None = field(default=None, metadata=UNCHECKED)
    host: str = field(default="", metadata=UNLESS_EMPTY)
    notices: Sequence[str] = ()
    problems: Sequence[str] = ()
    swaps: Sequence[Mapping[str, Any]] = ()
    module: str = ""
    adopted: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    in_process: bool = False
    rank: int = 0
    world_size: int = 1
    ranks: Sequence[Mapping[str, Any]] = field(default_factory=list)
    agreement: Mapping[str, Any] | None = None
    place: str = field(default="", metadata=NOT_WRITTEN)
    experiment: Experiment | None = field(default=None, metadata=UNLESS_EMPTY)
    files: RunFiles | None = field(default=None, metadata=UNLESS_EMPTY)
    revision: str = field(default="", metadata=UNLESS_EMPTY)
    elsewhere: str = field(default="", metadata=UNLESS_EMPTY)
    schema: int = SCHEMA

    @property
    def got_through(self) -> bool:
        """Return whether the script reached its end, whether or not its losses were finite."""
        return self.status in ("complete", "nonfinite")

    @property
    def failed(self) -> bool:
        return self.status not in ("complete", "running")

    @property
    def interrupted(self) -> bool:
        """Return whether the run was ended only because numdrift itself was ended."""
        return self.status == "killed" and self.message in (INTERRUPTED, ABANDONED)

    @property
    def is_one_process(self) -> bool:
        """Return whether the run was a single process that numdrift started. Such a run can be repeated."""
        return self.world_size == 1 and not self.in_process

    @property
    def label(self) -> str:
        """The name of the run among the runs of its investigation."""
        label = f"{self.suffix}: {self.mode}" if self.suffix else self.mode
        return f"{self.place}/{label}" if self.place else label

    def to_json(self) -> dict[str, object]:
        return of_fields(self)

    def write(self, path: Path) -> None:
        """Write the manifest atomically: a reader sees the old manifest or the new one, never a part."""
        put(path, json_text(self))


FORM = FileForm(RunManifest, SCHEMA)


def read_manifest(folder: Path) -> RunManifest:
    """Read the manifest of a run's folder.

    If the manifest says that the run is running, but the numdrift process that watched it on this machine is gone, the
    returned status is `killed`. A run that another machine watches stays `running`. Raises RunNotFound or JournalError.
    """
    try:
        manifest = FORM.read(folder / MANIFEST)
    except FileNotFoundError:
        raise RunNotFound(f"{folder} is not a run: it has no {MANIFEST}") from None
    if manifest.status != "running" or manifest.host not in ("", socket.gethostname()):
        return manifest
    abandoned = replace(manifest, status="killed", message=ABANDONED)
    if not isinstance(manifest.pid, int) or manifest.pid <= 0:  # `kill` takes 0 or less for a group of processes
        return abandoned
    try:
        os.kill(manifest.pid, 0)  # signal 0 only checks whether a signal could be sent
    except (ProcessLookupError, OverflowError):
        return abandoned
    except PermissionError:  # the process is alive, but belongs to another user
        pass
    return manifest


def holds_no_step(folder: RunFolder) -> bool:
    """Check whether a folder has only a run that failed before its first step. A new run may replace such a run."""
    try:
        manifest = read_manifest(folder.path)
    except NumdriftError:
        return False
    return manifest.failed and not manifest.steps
