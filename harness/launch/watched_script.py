"""The command line of a training that is watched: a script as its user starts it, with or without `python`."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError

PYTHON = re.compile(r"python[0-9.]*")

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec")


@dataclass(frozen=True, slots=True)
class WatchedScript:
    """A script and its arguments.

    script: the script, or None for a module
    module: the name of the module, None for a script
    python: another interpreter than this one, None for this one
    unbuffered: whether Python is to write its output at once (`-u`)
    """

    script: str | None
    arguments: tuple[str, ...]
    module: str | None = None
    python: str | None = None
    unbuffered: bool = False

    def plain_command(self) -> list[str]:
        """Return the command without numdrift."""
        named = ["-m", self.module] if self.module else [self.script or ""]
        unbuffered = ["-u"] if self.unbuffered else []
        return [self.python or sys.executable, *unbuffered, *named, *self.arguments]


def watched_script(words: Sequence[str], module: str | None) -> WatchedScript:
    """Read `train.py ARGS`, `train.py -- ARGS`, `python -u train.py ARGS` or `python -m package.train ARGS`.

    Raises UsageError.
    """
    words = list(words)
    if module is not None:
        return WatchedScript(None, tuple(words[1:] if words[:1] == ["--"] else words), module)
    if not words:
        raise UsageError("no script is given; give the command of a training, as in numdrift watch python train.py")
    name = Path(words[0]).name
    if name in LAUNCHERS:
        raise UsageError(
            f"{name} starts several processes; let it start numdrift, as in torchrun --nproc-per-node 2 -m numdrift "
            "watch train.py"
        )
    if not PYTHON.fullmatch(name):
        rest = words[2:] if words[1:2] == ["--"] else words[1:]
        return WatchedScript(words[0], tuple(rest))
    python, rest, unbuffered = _interpreter(words[0]), list(words[1:]), False
    if rest[:1] == ["-u"]:
        rest, unbuffered = rest[1:], True
    if rest[:1] == ["-m"] and len(rest) > 1:
        return WatchedScript(None, tuple(rest[2:]), rest[1], python, unbuffered)
    if not rest or rest[0].startswith("-"):
        option = f"{words[0]} {rest[0]}" if rest else words[0]
        raise UsageError(
            f"`{option}` cannot be watched: numdrift watches a script or a module, as in python train.py, python -u "
            "train.py or python -m package.train"
        )
    return WatchedScript(rest[0], tuple(rest[1:]), None, python, unbuffered)


def _interpreter(named: str) -> str | None:
    """Return the path of a Python, None if it is this one. Raises UsageError if there is none."""
    path = shutil.which(named)
    if path is None:
        raise UsageError(f"{named} is not a program on this machine; give the Python that trains, or only the script")
    # The folder decides: the Pythons of two environments are often links to the same program.
    return None if Path(path).parent.resolve() == Path(sys.executable).parent.resolve() else str(Path(path).absolute())
