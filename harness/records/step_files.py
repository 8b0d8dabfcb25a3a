"""Where a run keeps what belongs to single steps. Light: readers share it."""

from __future__ import annotations

import re
from pathlib import Path

STATES = "states"
OUTCOMES = "outcomes"
STATE = "a state of this training"
"""What is not available where none can be kept, in a run's notices."""

NUMBERED = re.compile(r"(?:state|outcome)-(\d+)\.safetensors")


def state_file(run: Path, step: int) -> Path:
    """The state at the beginning of a step."""
    return run / STATES / f"state-{step:06d}.safetensors"


def inputs_file(states: Path, step: int) -> Path:
    """What the models were first called with in a step, beside its state in a folder of states."""
    return states / f"inputs-{step:06d}.safetensors"


def outcome_file(run: Path, step: int) -> Path:
    """What a step gave: losses, gradients, and the state after it."""
    return run / OUTCOMES / f"outcome-{step:06d}.safetensors"


def steps_in(folder: Path) -> list[int]:
    """The steps that have a file in a folder of states or outcomes, in order."""
    found = (NUMBERED.fullmatch(path.name) for path in folder.glob("*.safetensors"))
    return sorted(int(one[1]) for one in found if one is not None)
