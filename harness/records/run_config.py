"""The parent's message to the recorder: one JSON file, read before torch is imported."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .codec import of_fields, read_fields
from .mode_spec import ModeSpec
from .run_files import OwnFolders
from .run_request import RunRequest


@dataclass(frozen=True, slots=True)
class RunConfig(RunRequest):
    """The process of one run, or of one rank of it: `journal` is the folder to write.

    `folder` is the current folder of the script, and `files` says which folders are its own. `script` is the file to
    run, for `-m` that of the module; `invoked` is its path as the user gave it. `kernels` are the user's own, as (op,
    path). `resync` is the folder of another run's states: each step that has one there starts from it. If `rejoin`
    names the folder of this training's own states, the training continues after such a step from its own next state.
    `rank` is this process's among `world_size` processes of the run. `serve` is the path of a unix socket at which the
    process answers after the script has ended well; "" means that it then exits, as usual."""

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
    files: OwnFolders = field(default_factory=OwnFolders)
    rank: int = 0
    world_size: int = 1

    def to_json(self) -> dict[str, object]:
        return of_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> RunConfig:
        """Read a config, also of an older version: fields that it lacks get their defaults. Raises Unreadable."""
        return read_fields(cls, data)

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
