"""Interpreters with other versions of torch, installed on demand into numdrift's cache."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UsageError
from ..runs.run_layout import own_cache

VERSION = re.compile(r"\d+(\.\d+)*")
"""The pattern of a released version. Release candidates and nightly builds have further parts."""

INSTALLED = "installed"
"""A file in an environment that says that the installation into it was complete."""


def versions_between(good: str, bad: str, pip: Sequence[str] = ()) -> list[str]:
    """Return the released versions of torch from `good` to `bad`, as pip lists them, the good one first.

    `good` may be the later version. `pip` are further arguments of pip. Raises UsageError if pip does not list both.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check", *pip]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if listed is None:
        raise UsageError(f"pip lists no versions of torch: {_last_line(done.stderr)}")
    names = [name.strip().partition("+")[0] for name in listed[1].split(",")]
    available = sorted({name for name in names if VERSION.fullmatch(name)}, key=_numbers)
    for version in (good, bad):
        if version not in available:
            raise UsageError(f"there is no torch {version}; pip has {', '.join(available)}")
    first, last = sorted((available.index(good), available.index(bad)))
    between = available[first : last + 1]
    if len(between) < 2:
        raise UsageError(f"{good}..{bad} is one version of torch; name two, as in 2.9.0..2.13.0")
    return between if available.index(good) == first else between[::-1]


def interpreter_with(version: str, packages: Sequence[str], pip: Sequence[str], say: Callable[[str], None]) -> Path:
    """Return a Python that has this version of torch and the packages, from the cache if it is there.

    Raises UsageError with pip's reason if they cannot be installed.
    """
    # A package may be a path or an address, and another index may have another build.
    requested = hashlib.sha256(json.dumps([sorted(packages), list(pip)]).encode()).hexdigest()[:12]
    python_version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = own_cache("torch") / f"{version}-{python_version}-{requested}"
    python = folder / "bin" / "python"
    if (folder / INSTALLED).exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)  # an installation that was interrupted
    say(f"installing torch {version} into {folder}")
    wanted = [f"torch=={version}", *packages]
    try:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pip, *wanted],
        ):
            subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(f"torch {version} cannot be installed: {_last_line(error.stderr)}") from None
    (folder / INSTALLED).touch()
    return python


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "pip printed nothing")
