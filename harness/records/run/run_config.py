"""The configuration that a run's parent passes to the recorder: one JSON file, read before torch is imported."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..codec import of_fields, read_fields
from ..modes.mode_spec import ModeSpec
from .run_files import OwnFolders
from .run_request import RunRequest


@dataclass(frozen=True, slots=True)
class RunConfig(RunRequest):
    """The configuration of the process of a run, or of one rank of a run.

    script: the file to run; for `-m`, the file of the module
    journal: the folder that the journal is written to
    kernels: the user's kernels, as (op, path)
    resync: the folder of another run's states; each step that has a state in this folder starts from that state
    rejoin: the folder of this mode's own states, from an earlier run; after a resynced step, the run continues from its
        own state at the beginning of the next step
    serve: the path of a Unix socket at which the process answers requests after the script has succeeded; "" if the
        process is to exit instead
    invoked: the script's path as the user gave it
    folder: the script's current working directory
    arguments: the script's arguments in all modes; the mode may replace them or add to them
    import_paths: folders in which the script finds modules before all others, except its own folder
    revision: the commit of the script's repository, if the mode states a revision
    beside: another folder whose files the script must not change, because links in `folder` lead there
    files: the private folders of the run
    earlier: the folders of earlier runs of the investigation; values that these have kept are not written again
    rank, world_size: this process's rank, and the number of processes of the run
    """

    script: str
    mode: ModeSpec
    journal: str
    arguments: tuple[str, ...] = ()
    kernels: tuple[tuple[str, str], ...] = ()
    resync: str = ""
    rejoin: str = ""
    serve: str = ""
    invoked: str = ""
    folder: str = ""
    import_paths: tuple[str, ...] = ()
    revision: str = ""
    beside: str = ""
    files: OwnFolders = field(default_factory=OwnFolders)
    earlier: tuple[str, ...] = ()
    rank: int = 0
    world_size: int = 1

    def to_json(self) -> dict[str, object]:
        return of_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> RunConfig:
        """Read a config. Fields that an older version lacks get their defaults. Raises Unreadable."""
        return read_fields(cls, data)

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
