"""Replaying what an opened bundle holds: snapshots, and the culprits' scripts where that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from numdrift.kernels.registry import load_target

from ...errors import NumdriftError
from ...localize.standalone_scripts import execute_script

SNAPSHOT = "numdrift.harness.tools.snapshots.replay_answer:answer_of"
"""Imports torch, which only a replay needs."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of replaying one file of a bundle: `holds` when it shows here what it showed where it was
    made. Not `comparable` where the mode draws other random numbers; what depends on them is not asked
    then."""

    path: str
    holds: bool
    text: str
    comparable: bool = True


def replay_snapshots(folder: Path, mode: str | None = None) -> list[Replayed]:
    """Execute every snapshot, in a mode or in the one that it was taken in, and hold its outputs against the
    recorded ones.

    No code of the bundle's is executed, only ops that torch has registered. `mode` is one in full.
    """
    found = []
    for path in sorted(folder.rglob("snapshots/*.safetensors")):
        name = path.relative_to(folder).as_posix()
        try:
            answer = load_target(SNAPSHOT)(path, mode)
        except NumdriftError as error:
            found.append(Replayed(name, False, str(error).removeprefix(f"{path}: ")))
            continue
        text = f"in mode {answer.spec} {answer.text}"
        found.append(Replayed(name, answer.holds, text, answer.comparable))
    return found


def replay_scripts(folder: Path) -> list[Replayed]:
    """Execute every culprit's script, each in an interpreter of its own, with the rights of this process."""
    found = []
    for script in sorted(folder.rglob("culprit-*.py")):
        if not script.with_suffix(".safetensors").exists():
            continue
        answer = execute_script(script)
        found.append(
            Replayed(script.relative_to(folder).as_posix(), answer.reproduces is True, answer.output or "")
        )
    return found
