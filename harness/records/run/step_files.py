"""The files of a run that belong to single steps. This module imports little, since reports import it too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATES = "states"
OUTCOMES = "outcomes"
STATE = "a state of this training"
"""The words for a state that cannot be kept, in a run's notices."""

CARRIED = "carried "
EVALUATION = "evaluation "
OF_SCRIPT = (CARRIED, EVALUATION)
"""The prefixes of the names of values in an outcome that only the script knows: tensors that it carries from step to
step, and what its model returns in evaluations. They are looked for, so one run may lack some that the other has."""


def is_lacking(name: str, a: Any, b: Any) -> bool:
    """Check whether a value says nothing because only the script knows it, and one of two runs lacks it or has it in
    another shape. `a` and `b` are the values of both runs, None for a run without it."""
    return name.startswith(OF_SCRIPT) and (a is None or b is None or a.shape != b.shape)


LEAVES_OUT = "the tape leaves out"
"""The words of a notice about a step whose tape is not whole."""

NUMBERED = re.compile(r"(?:state|outcome)-(\d+)\.safetensors")

FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def state_file(run: Path, step: int) -> Path:
    """Return the path of the state at the beginning of a step."""
    return run / STATES / f"state-{step:06d}.safetensors"


def inputs_file(states: Path, step: int) -> Path:
    """Return the path of the file, beside a step's state, with the arguments of the step's first call of a model."""
    return states / f"inputs-{step:06d}.safetensors"


def outcome_file(run: Path, step: int) -> Path:
    """Return the path of the outcome of a step: its losses, its gradients, and the state after it."""
    return run / OUTCOMES / f"outcome-{step:06d}.safetensors"


def recompiled_folder(run: Path, name: str) -> Path:
    """Return the folder for the outcomes of steps of a run that were executed with code compiled in a different way.

    `name` identifies the way of compiling. Raises ValueError for a name that no folder can have.
    """
    if not FOLDER.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid folder name")
    return run / "recompiled" / name


def write_noise_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the noise of a step atomically. An existing file is replaced. Raises OSError."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(path)


def steps_in(folder: Path) -> list[int]:
    """Return the steps that have a file in a folder of states or outcomes, in order."""
    matches = (NUMBERED.fullmatch(path.name) for path in folder.glob("*.safetensors"))
    return sorted(int(match[1]) for match in matches if match is not None)
