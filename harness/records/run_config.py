"""What the parent tells the recorder: one JSON file, read before torch is imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .mode_spec import ModeSpec
from .run_request import RunRequest
from .step_selection import KeepParams, StepSelection

READ: Mapping[str, Callable[[Any], Any]] = {
    "StepSelection": StepSelection.parse,
    "StepSelection | None": lambda text: None if text is None else StepSelection.parse(text),
    "KeepParams": KeepParams.parse,
    "ModeSpec": ModeSpec.from_json,
    "tuple[str, ...]": tuple,
    "tuple[tuple[str, str], ...]": lambda pairs: tuple((op, path) for op, path in pairs),
}
"""How what JSON has another form for is read, by the field's type."""


@dataclass(frozen=True, slots=True)
class RunConfig(RunRequest):
    """The process of one run, or of one rank of it: `journal` is the folder to write.

    `script` is the file to run, of `-m` that of the module; `invoked` is its path as the user gave it. `kernels` are the
    user's own, as (op, path). `resync` is the folder of another run's states: each step that has one there starts from it.
    `rank` is this process's among `world_size` processes of the run. `serve` is the path of a unix socket at which the
    process answers after the script has ended well; "" means that it exits then, as ever.
    """

    script: str
    mode: ModeSpec
    journal: str
    arguments: tuple[str, ...] = ()
    kernels: tuple[tuple[str, str], ...] = ()
    resync: str = ""
    serve: str = ""
    invoked: str = ""
    rank: int = 0
    world_size: int = 1

    def to_json(self) -> dict[str, Any]:
        data = asdict(self) | {"mode": self.mode.to_json()}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, (StepSelection, KeepParams)):
                data[one.name] = str(value)
            elif isinstance(value, tuple):
                data[one.name] = list(value)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunConfig:
        """Read a config, also of an older version: what that one did not know has its default."""
        forms = {one.name: READ[str(one.type)] for one in fields(cls) if str(one.type) in READ}
        return cls(**{name: forms[name](value) if name in forms else value for name, value in data.items()})

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
