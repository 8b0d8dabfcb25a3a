"""The files of a run that belong to single steps. Light: readers share it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATES = "states"
OUTCOMES = "outcomes"
STATE = "a state of this training"
"""The name, in a run's notices, of the thing that is not available where no state can be kept."""

NUMBERED = re.compile(r"(?:state|outcome)-(\d+)\.safetensors")

FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def state_file(run: Path, step: int) -> Path:
    """The state at the beginning of a step."""
    return run / STATES / f"state-{step:06d}.safetensors"


def inputs_file(states: Path, step: int) -> Path:
    """The arguments of the models' first calls in a step, beside its state in a folder of states."""
    return states / f"inputs-{step:06d}.safetensors"


def outcome_file(run: Path, step: int) -> Path:
    """The outcome of a step: losses, gradients, and the state after it."""
    return run / OUTCOMES / f"outcome-{step:06d}.safetensors"


def recompiled_folder(run: Path, name: str) -> Path:
    """The folder of the outcomes of a run's steps that were executed with their code compiled in another way.

    The name says in which. Raises ValueError for a name that no folder can have.
    """
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
    matches = (NUMBERED.fullmatch(path.name) for path in folder.glob("*.safetensors"))
    return sorted(int(match[1]) for match in matches if match is not None)
