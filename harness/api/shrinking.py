"""The scripts of a check's causes, shrunk to the smallest inputs that still show them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from ..records.results.call_check import CheckedMode, ShrunkScript

PROGRAM = "numdrift.harness.localize.scripts.shrunk_script"
TIMEOUT = 300.0
"""The seconds that shrinking one script may take."""


def with_shrunk(mode: CheckedMode) -> CheckedMode:
    """Return the mode with a shrunk script for each proven cause that has a script."""
    culprits = () if mode.pair is None else mode.pair.culprits
    faults = [culprit for culprit in culprits if culprit.is_proven and culprit.significance == "beyond-rounding"]
    scripts = [
        Path(culprit.script.path)
        for culprit in faults
        if culprit.script is not None and culprit.script.reproduces and culprit.script.path
    ]
    made = [_shrunk(script) for script in scripts]
    if faults and not made:
        made = [ShrunkScript("", "no script shows this cause alone, so there is nothing to shrink")]
    return replace(mode, shrunk=made)


def _shrunk(script: Path) -> ShrunkScript:
    target = script.with_name(script.name.replace("culprit", "shrunk"))
    command = [sys.executable, "-m", PROGRAM, str(script), str(target)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return ShrunkScript("", f"shrinking {script.name} did not end within {TIMEOUT:.0f} s")
    lines = (done.stdout if done.returncode in (0, 2) else done.stderr).strip().splitlines()
    text = lines[-1] if lines else "its process failed"
    return ShrunkScript("" if done.returncode else str(target), text)
