"""Where a run keeps what belongs to single steps. Light: readers share it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATES = "states"
OUTCOMES = "outcomes"
STATE = "a state of this training"
"""What is not available where none can be kept, in a run's notices."""

NUMBERED = re.compile(r"(?:state|outcome)-(\d+)\.safetensors")

FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def state_file(run: Path, step: int) -> Path:
    """The state at the beginning of a step."""
    return run / STATES / f"state-{step:06d}.safetensors"


def inputs_file(states: Path, step: int) -> Path:
    """What the models were first called with in a step, beside its state in a folder of states."""
    return states / f"inputs-{step:06d}.safetensors"


def outcome_file(run: Path, step: int) -> Path:
    """What a step gave: losses, gradients, and the state after it."""
    return run / OUTCOMES / f"outcome-{step:06d}.safetensors"


def recompiled_folder(run: Path, name: str) -> Path:
    """Where the outcomes of a run's steps lie that were executed with their compiled code compiled in another way, as
    this name says. Raises ValueError for a name that is none of a folder."""
    if not FOLDER.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a folder")
    return run / "recompiled" / name


def write_noise_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the noise of a step, all of it or nothing; an existing one is replaced. Raises OSError."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(path)


def steps_in(folder: Path) -> list[int]:
    """The steps that have a file in a folder of states or outcomes, in order."""
    found = (NUMBERED.fullmatch(path.name) for path in folder.glob("*.safetensors"))
    return sorted(int(one[1]) for one in found if one is not None)
