"""Which file is meant: a path, a command on the PATH that is a Python program, or a module behind `-m`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ..errors import UsageError, nearest


@dataclass(frozen=True, slots=True)
class Reproducer:
    """The file to run, and the name of its module where it was asked for as one (else empty)."""

    path: Path
    module: str = ""

    @property
    def named_after(self) -> Path:
        """What an investigation of it is named after: of `python -m pkg` the package, not its `__main__.py`."""
        return Path(self.module.rpartition(".")[2]) if self.module else self.path


def asked_for(script: str | None, module: str | None, arguments: Sequence[str]) -> tuple[Reproducer, tuple[str, ...]]:
    """The reproducer and its arguments from a command line; behind `-m` the first argument stands in place of a script.

    Raises UsageError when neither is given or the module is not found.
    """
    if module is None:
        if script is None:
            raise UsageError("no script is given; give the path of a training script, or -m and a module's name")
        return Reproducer(find_script(script)), tuple(arguments)
    return find_module(module), (*([] if script is None else [script]), *arguments)


def find_script(text: str) -> Path:
    """The path as it is, or that of a console script on the PATH whose first line names a Python interpreter."""
    path = Path(text)
    if path.exists() or os.sep in text:
        return path
    found = shutil.which(text)
    if found is not None:
        with Path(found).open("rb") as file:
            first = file.readline(256)
        if first.startswith(b"#!") and b"python" in first:
            return Path(found)
        raise UsageError(f"{text} is {found}, which is no Python program; give the training script that it starts")
    return path


def find_module(name: str) -> Reproducer:
    """The file that `python -m NAME` would run from here. Nothing of the package is imported.

    Raises UsageError.
    """
    further = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    folders: Sequence[str] = [str(Path.cwd()), *further, *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for place in range(len(parts)):
        whole = ".".join(parts[: place + 1])
        spec = PathFinder.find_spec(whole, folders) if all(parts) else None
        if spec is None:
            beside = {path.stem for folder in folders[:1] for path in Path(folder).glob("*.py")}
            hint = nearest(parts[place], beside) if beside else "start it where `python -m` finds it"
            raise UsageError(f"there is no module {whole!r} to run with -m from {Path.cwd()}; {hint}")
        folders = list(spec.submodule_search_locations or ())
    if spec is not None and spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", folders)
        if spec is None:
            raise UsageError(f"{name} is a package without __main__.py; name the module in it that trains")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(f"module {name!r} has no Python source; give a training script")
    return Reproducer(Path(spec.origin), name)
