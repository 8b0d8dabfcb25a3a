"""How the process of one run is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..records.mode_spec import ModeSpec

PACKAGE = Path(__file__).absolute().parents[2]
"""The folder that holds numdrift's `__init__.py`, through the links of a source checkout or installed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start. `timeout` is in seconds; the streams go to files, straight from the process.

    `variables` are added to its environment: what must be there before torch is imported. `others` are the ranks from
    1 on of a run of several processes, of which this is rank 0. `reads_input` gives it our standard input.
    """

    name: str
    spec: ModeSpec
    config: Path
    events: Path
    stdout: Path
    stderr: Path
    timeout: float | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Launch] = ()
    reads_input: bool = False


def interpreter(spec: ModeSpec) -> str:
    """The Python that a mode runs in. Raises UsageError when there is none at the path that it names."""
    if spec.python is None:
        return sys.executable
    found = shutil.which(spec.python)
    if found is None:
        raise UsageError(f"mode {spec.name!r}: python={spec.python} is no program on this machine")
    return found


def environment(spec: ModeSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The process's variables: the parent's, the same hash seed in every mode, and what the mode states."""
    variables = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", **inherited}
    variables.pop("DEVICE", None)
    if spec.threads is not None:
        variables |= {name: str(spec.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return variables | dict(spec.env)


def guest_command(config: Path, *, python: str = sys.executable, module: str = "") -> list[str]:
    """What starts a process with a configuration: the recorder, or the `main` of another module of numdrift."""
    command = [python, str(PACKAGE / "harness/recorder/bootstrap.py"), str(PACKAGE), str(config)]
    return [*command, module] if module else command


def start(launch: Launch) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, so that signals of the terminal reach it through us."""
    with launch.stdout.open("ab") as stdout, launch.stderr.open("ab") as stderr:
        return subprocess.Popen(
            guest_command(launch.config, python=interpreter(launch.spec)),
            stdin=None if launch.reads_input else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment(launch.spec, os.environ) | dict(launch.variables),
            start_new_session=True,
        )
