"""The packages of interpreters. Each interpreter imports its torch and reports its packages, all at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..records.modes.mode_spec import ModeSpec
from .checked_interpreter import PATIENCE
from .guest_process import environment, guest_command

MODULE = "numdrift.harness.recorder.fingerprint"


def probed(interpreters: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the fingerprint of each interpreter, without a mode's changes.

    The fingerprint of an interpreter that does not answer within PATIENCE is empty. The call takes as long as the
    slowest import of torch: 3 s if torch's files are in memory.
    """
    with tempfile.TemporaryDirectory(prefix="numdrift-") as folder:
        answers = [Path(folder, f"{number}.json") for number in range(len(interpreters))]
        started = [
            subprocess.Popen(
                guest_command(answer, python=python, module=MODULE),
                env=environment(ModeSpec(name="cpu", base="cpu", python=python), os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for python, answer in zip(interpreters, answers, strict=True)
        ]
        for process in started:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return [_read(answer) for answer in answers]


def _read(answer: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(answer.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}
