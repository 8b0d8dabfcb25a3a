"""What is wrong with the Python that a mode names, found before anything is started in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..records.mode_spec import ModeSpec
from .guest_process import environment, interpreter

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 6)

PATIENCE = 60.0
"""Seconds until a program that was asked for its version is taken for no Python."""

QUESTION = """
import importlib.util, json, os, sys
sys.path = [folder for folder in sys.path if folder]
answer = {"python": list(sys.version_info[:2])}
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
        names = {}
        exec(file.read(), names)
    answer["torch"] = str(names["__version__"])
print(json.dumps(answer))
"""
"""Asks without importing torch, which takes seconds. Any Python 3 understands it."""


def check_interpreter(spec: ModeSpec) -> None:
    """Ask the Python of a mode for its version and its torch's. Raises UsageError when one of them will not do."""
    if spec.python is None:
        return
    try:
        what_is_wrong = _what_is_wrong(interpreter(spec), environment(spec, os.environ))
    except (OSError, subprocess.TimeoutExpired) as error:
        what_is_wrong = f"is no Python that can be started ({type(error).__name__})"
    if what_is_wrong:
        raise UsageError(f"mode {spec.name!r}: python={spec.python} {what_is_wrong}")


def _what_is_wrong(python: str, variables: Mapping[str, str]) -> str:
    """The rest of a sentence about the program; empty if all is well."""
    done = subprocess.run(
        [python, "-c", QUESTION],
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=PATIENCE,
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
        version = tuple(found["python"])
    except (ValueError, TypeError, KeyError):
        said = (done.stderr.strip().splitlines() or ["it printed no version"])[-1]
        return f"is no Python: {said}"
    if version < OLDEST_PYTHON:
        return f"is Python {_dotted(version)}, numdrift needs {_dotted(OLDEST_PYTHON)} or later"
    if "torch" not in found:
        return f"has no torch; install one there: {python} -m pip install torch"
    if tuple(int(part) for part in re.findall(r"\d+", found["torch"])[:2]) < OLDEST_TORCH:
        return f"has torch {found['torch']}, numdrift needs {_dotted(OLDEST_TORCH)} or later"
    return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
