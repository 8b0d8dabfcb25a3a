"""The reproducers under plain Python, without numdrift."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .forked import python

ROOT = Path(__file__).parents[2]

PLAIN = {"cpu": ("cpu", []), "compile": ("cpu", ["--compile"]), "lazy": ("lazy", [])}
"""The DEVICE and the flags of a reproducer that do by themselves what the mode does."""


def save_plain(saved: Path, reproducer: str, mode: str, steps: int, *, alone: bool) -> None:
    """Train in a process that is forked or, `alone`, started, and save the losses and the final parameters."""
    device, flags = PLAIN[mode]
    command = [str(ROOT / f"reproducers/{reproducer}.py"), "--epochs", str(steps), *flags, "--save", str(saved)]
    if alone:
        environment = os.environ | {"DEVICE": device, "PYTHONHASHSEED": "0"}
        subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=True)
    else:
        done = python(saved.parent, *command, DEVICE=device, PYTHONHASHSEED="0")
        assert done.returncode == 0, done.stderr
