"""Replay an opened bundle: its snapshots, and on request the culprits' scripts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from numdrift.kernels.registry import load_target

from ...errors import NumdriftError
from ...localize.scripts.script_interpreter import ScriptInterpreter, Scripts
from ...localize.scripts.standalone_scripts import execute_script

SNAPSHOT = "numdrift.harness.tools.snapshots.replay_answer:answer_of"
"""The name of the function that replays a snapshot. Its module imports torch, so it is imported only for a replay."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of replaying one file of a bundle.

    holds: whether the replay gives the same result on this machine as where the bundle was made
    comparable: False if the mode draws different random numbers; values that depend on them are then not judged
    """

    path: str
    holds: bool
    text: str
    comparable: bool = True


def replay_snapshots(folder: Path, mode: str | None = None) -> list[Replayed]:
    """Execute every snapshot, and compare its outputs with the recorded outputs.

    `mode` is the full text of a mode; by default each snapshot uses its own mode. No code from the bundle is executed,
    only ops that torch has registered.
    """
    replays = []
    for path in sorted(folder.rglob("snapshots/*.safetensors")):
        name = path.relative_to(folder).as_posix()
        try:
            answer = load_target(SNAPSHOT)(path, mode)
        except NumdriftError as error:
            replays.append(Replayed(name, False, str(error).removeprefix(f"{path}: ")))
            continue
        text = f"in mode {answer.spec}, {answer.text}"
        replays.append(Replayed(name, answer.holds, text, answer.comparable))
    return replays


def replay_scripts(folder: Path) -> list[Replayed]:
    """Execute every culprit's script, each in its own process, with the rights of this process."""
    scripts = [path for path in sorted(folder.rglob("culprit-*.py")) if path.with_suffix(".safetensors").exists()]
    if not scripts:
        return []
    replays = []
    with ScriptInterpreter() as started, Scripts(started.address) as interpreter:
        for script in scripts:
            answer = execute_script(script, interpreter)
            name = script.relative_to(folder).as_posix()
            replays.append(Replayed(name, answer.reproduces is True, answer.output or ""))
    return replays
