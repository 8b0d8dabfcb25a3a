"""Checks that the interpreter of a mode can run guest processes, by its versions of Python, torch and torch_xla."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..records.modes.mode_spec import ModeSpec
from .guest_process import interpreter, run_to_end

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 6)
OLDEST_TORCH_XLA = (2, 9)

PATIENCE = 60.0
"""A program that does not report its version within this number of seconds does not count as a Python interpreter."""

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
if importlib.util.find_spec("torch_xla") is not None:
    from importlib.metadata import version
    answer["torch_xla"] = version("torch_xla")
print(json.dumps(answer))
"""
"""A program that finds the versions without an import of torch, which would take seconds. It runs on Python 3.8 or
later."""


def check_interpreter(spec: ModeSpec) -> dict[str, str]:
    """Ask the Python of a mode for the versions of its torch and torch_xla.

    Return the versions; an empty dict for numdrift's own Python. Raises UsageError if one of them cannot be used.
    """
    if spec.python is None:
        return {}
    python, wrong = interpreter(spec), ""
    try:
        done = run_to_end([python, "-c", QUESTION], spec, PATIENCE)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"mode {spec.name!r}: python={spec.python} is not a Python interpreter that can be started "
            f"({type(error).__name__})"
        ) from None
    try:
        # Only the last line is the answer: a `sitecustomize` of that Python may print before it.
        versions: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
        version = tuple(versions["python"])
        if version < OLDEST_PYTHON:
            wrong = f"is Python {_dotted(version)}, but numdrift needs {_dotted(OLDEST_PYTHON)} or later"
        elif "torch" not in versions:
            wrong = f"has no torch; install one there: {python} -m pip install torch"
        # Only the first two numbers of `2.13.0a0+git1234` count.
        elif _numbers(versions["torch"]) < OLDEST_TORCH:
            wrong = f"has torch {versions['torch']}, but numdrift needs {_dotted(OLDEST_TORCH)} or later"
        elif spec.capabilities.package:
            wrong = _wrong_with_xla(versions)
    except (ValueError, TypeError, KeyError):
        wrong = f"is not a Python interpreter: {(done.stderr.strip().splitlines() or ['it printed no version'])[-1]}"
    if wrong:
        raise UsageError(f"mode {spec.name!r}: python={spec.python} {wrong}")
    return {name: str(versions[name]) for name in ("torch", "torch_xla") if name in versions}


XLA_REMEDY = "`bash scripts/xla` creates .venv-xla with versions that work together"


def _wrong_with_xla(versions: Mapping[str, Any]) -> str:
    """Return the reason why mode `xla` cannot run in an environment, or "" if it can."""
    if "torch_xla" not in versions:
        return f"has torch {versions['torch']} but no torch_xla; {XLA_REMEDY}"
    if _numbers(versions["torch_xla"]) < OLDEST_TORCH_XLA:
        return (
            f"has torch_xla {versions['torch_xla']}, but numdrift needs {_dotted(OLDEST_TORCH_XLA)} or later; "
            f"{XLA_REMEDY}"
        )
    if _numbers(versions["torch_xla"]) != _numbers(versions["torch"]):
        return (
            f"has torch_xla {versions['torch_xla']} and torch {versions['torch']}, but this torch_xla loads only with "
            f"torch {versions['torch_xla']}; {XLA_REMEDY}"
        )
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return the major and minor version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
