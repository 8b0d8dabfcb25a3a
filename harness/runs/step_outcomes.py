"""Read the files about single steps that an investigation's experiments keep beside a run's journal.

states/state-000012.safetensors      the state that step 12 begins with
outcomes/outcome-000012.safetensors  the results of step 12: its losses, its gradients, the state after it
tapes/noise-000012.json              how far rounding alone moves the results of step 12
tapes/exact-000012.safetensors       the results of step 12, computed in double
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JournalError
from .mapped_tensors import TensorFile, read_tensor_file
from .numpy_values import Array

STEP = re.compile(r"[a-z]+-(\d{6,})\.(?:safetensors|json)")
NOISE_SCHEMA = 1
CONTENTS = {
    "state": "a state",
    "outcome": "an outcome",
    "tape": "a tape",
    "noise": "a measured noise",
    "exact": "results in double",
}
"""The kinds of files, in words for messages."""

FOLDERS = {"state": "states", "outcome": "outcomes", "tape": "tapes", "noise": "tapes", "exact": "tapes"}


def outcome_steps(run: Path) -> list[int]:
    """Return the steps whose outcomes are kept in this run's folder, in order."""
    return _steps(run, "outcome")


def state_steps(run: Path) -> list[int]:
    """Return the steps whose states at the beginning are kept in this run's folder, in order."""
    return _steps(run, "state")


def exact_steps(run: Path) -> list[int]:
    """Return the steps whose results were computed in double, in order."""
    return _steps(run, "exact")


def tape_steps(run: Path) -> list[int]:
    """Return the steps that have a tape, in order."""
    return _steps(run, "tape")


def noise_steps(run: Path) -> list[int]:
    """Return, in order, the steps for which a measurement of the noise was made or attempted."""
    return _steps(run, "noise")


def read_outcome(run: Path, step: int) -> TensorFile:
    """Read a step's outcome. Raises JournalError, which names the steps that have an outcome."""
    return _read(run, "outcome", step)


def read_state(run: Path, step: int) -> TensorFile:
    """Read the state that a step began with. Raises JournalError, which names the steps that have a state."""
    return _read(run, "state", step)


def exact_facts(run: Path, step: int) -> Mapping[str, Any] | None:
    """Return the facts about a step's results in double precision; None if no referee computed them.

    Raises JournalError if the file is damaged.
    """
    return _read(run, "exact", step).facts if exact_path(run, step).exists() else None


def read_exact(run: Path, step: int) -> TensorFile | None:
    """Read a step's results in double precision; return None if no referee computed them.

    Of some results, the file has the distances from the step's outcome, as the fact `apart` says. Raises JournalError
    if the file is damaged, or if there is no such outcome.
    """
    if not exact_path(run, step).exists():
        return None
    exact = _read(run, "exact", step)
    apart = exact.facts.get("apart")
    if not apart:
        return exact
    outcome, names = read_outcome(run, step).tensors, frozenset(map(str, apart if isinstance(apart, list) else ()))
    unlike = [
        name
        for name in names
        if name not in outcome or name not in exact.tensors or outcome[name].shape != exact.tensors[name].shape
    ]
    if unlike:
        path = exact_path(run, step)
        raise JournalError(path, f"does not belong to the step's outcome, which has no such {unlike[0]}")
    sums = _Sums(exact.tensors, outcome, names)
    return TensorFile(sums, {**exact.dtypes, **dict.fromkeys(names, "float64")}, exact.facts)


@dataclass(frozen=True, slots=True)
class _Sums(Mapping[str, Array]):
    """Values of which some are kept as distances: each is computed when it is used, as all together may take a lot of
    memory."""

    kept: Mapping[str, Array]
    outcome: Mapping[str, Array]
    apart: frozenset[str]

    def __getitem__(self, name: str) -> Array:
        value = self.kept[name]
        return value if name not in self.apart else self.outcome[name].astype(np.float64) + value

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)


def read_noise_record(run: Path, step: int) -> Mapping[str, Any] | None:
    """Return the recorded noise of a step as plain JSON values; None if no noise was recorded.

    Raises JournalError if the file is damaged.
    """
    path = noise_path(run, step)
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}{_other_steps(run, 'noise')}") from error
    if not isinstance(record, dict) or record.get("schema") not in range(1, NOISE_SCHEMA + 1):
        raise JournalError(
            path, f"has a schema that this version of numdrift cannot read (it reads 1 to {NOISE_SCHEMA})"
        )
    if record.get("step") != step:
        raise JournalError(path, f"belongs to step {record.get('step')!r}, not to step {step}")
    return record


def outcome_path(run: Path, step: int) -> Path:
    return _path(run, "outcome", step)


def exact_path(run: Path, step: int) -> Path:
    return _path(run, "exact", step)


def tape_path(run: Path, step: int) -> Path:
    return _path(run, "tape", step)


def noise_path(run: Path, step: int) -> Path:
    return _path(run, "noise", step)


def _path(run: Path, kind: str, step: int) -> Path:
    return run / FOLDERS[kind] / f"{kind}-{step:06d}.{'json' if kind == 'noise' else 'safetensors'}"


def _steps(run: Path, kind: str) -> list[int]:
    pattern = f"{kind}-*{_path(run, kind, 0).suffix}"
    matches = [STEP.fullmatch(path.name) for path in (run / FOLDERS[kind]).glob(pattern)]
    return sorted(int(match[1]) for match in matches if match)


def _read(run: Path, kind: str, step: int) -> TensorFile:
    path = _path(run, kind, step)
    if not path.exists():
        raise JournalError(path, f"step {step} was not kept{_other_steps(run, kind)}")
    try:
        content = read_tensor_file(path)
    except JournalError as error:
        # The message lists the other steps, which the user could choose in place of the damaged one.
        why = str(error).removeprefix(f"{path}: ")
        raise JournalError(path, f"{why}{_other_steps(run, kind, but=step)}") from error
    # The file states its step: a file that was renamed or copied by hand must not be mistaken for another step's file.
    if content.facts.get("step", step) != step:
        raise JournalError(path, f"belongs to step {content.facts['step']!r}, not to step {step}")
    return content


def _other_steps(run: Path, kind: str, but: int | None = None) -> str:
    """Return the end of an error message. It lists the steps that were kept, except for `but`."""
    steps = [step for step in _steps(run, kind) if step != but]
    named = CONTENTS[kind]
    return f"; steps with {named}: {', '.join(map(str, steps))}" if steps else f"; no other step has {named}"
