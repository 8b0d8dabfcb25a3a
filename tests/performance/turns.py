"""Training processes that take turns: each trains some steps while the others wait, so all of them meet the same machine."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch

from numdrift.harness.records.frames import OPS

from .workloads import ROOT

SCRIPT = ROOT / "tests/performance/recorded_steps.py"
NUMDRIFT = (sys.executable, "-m", "numdrift")
START, END = 600, 60
"""Seconds that a process may take until its first turn, since it may have to compile its model, and after its last."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train: bare or with another tool (`tool`), or with numdrift's `--record level`; perhaps compiled.

    `options` are further options of `numdrift run`.
    """

    name: str
    tool: str = "bare"
    level: str = ""
    compiled: bool = False
    options: tuple[str, ...] = ()

    def command(self, model: str, path: Path, folder: Path) -> list[str]:
        script = [model, "--socket", str(path), "--name", self.name, "--way", self.tool]
        if not self.level:
            return [sys.executable, str(SCRIPT), *script, *(["--compile"] if self.compiled else [])]
        mode = "compile" if self.compiled else "cpu"
        options = ["--modes", mode, "--record", self.level, "--out", str(folder / self.name), "--quiet"]
        return [*NUMDRIFT, "run", str(SCRIPT), *options, *self.options, "--", *script]


@dataclass(frozen=True, slots=True)
class Turn:
    """The seconds and processor seconds of one step, as the mean over a turn, and the bytes of memory afterwards."""

    seconds: float
    processor: float
    resident: int


@dataclass(frozen=True, slots=True)
class StepOps:
    """The number of ops in a recorded step, and the bytes of all their outputs."""

    calls: int
    size: int


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of each way, and the last step of each way that records ops."""

    taken: dict[str, list[Turn]]
    ops: dict[str, StepOps]


def take_turns(model: str, ways: Sequence[Way], *, steps: int, rounds: int, environment: Mapping[str, str]) -> Turns:
    """Train `steps` steps in each way in turn, `rounds` times.

    Raises SystemExit if a process ends early.
    """
    taken: dict[str, list[Turn]] = {way.name: [] for way in ways}
    # The path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="turns-"))
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, folder, ignore_errors=True)
        server = undone.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(folder / "s"))
        server.listen(len(ways))
        server.settimeout(1)
        processes: list[subprocess.Popen[bytes]] = []
        connected: dict[str, TextIO] = {}
        for way in ways:
            log = undone.enter_context((folder / f"{way.name}.log").open("w+"))
            process = subprocess.Popen(
                way.command(model, folder / "s", folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | dict(environment),
                cwd=ROOT,
                # Linux shares a busy machine between sessions, and the script of a recorded run has its own.
                start_new_session=True,
            )
            undone.callback(process.wait)
            undone.callback(process.terminate)
            processes.append(process)
            connected[way.name] = undone.enter_context(_connection(server, process, folder / f"{way.name}.log"))
            name = connected[way.name].readline().strip()
            assert name == way.name, f"{name} has connected instead of {way.name}"
        for _ in range(rounds):
            for way in ways:
                turns = connected[way.name]
                print(steps, file=turns, flush=True)
                answer = turns.readline()
                if not answer:
                    raise SystemExit(f"{model}, {way.name}: ended early: {_last(folder / f'{way.name}.log')}")
                seconds, processor, resident = json.loads(answer)
                taken[way.name].append(Turn(seconds / steps, processor / steps, resident))
        for turns in connected.values():
            turns.close()
        for process in processes:
            process.wait(END)
        journals = {way.name: next((folder / way.name).rglob(OPS)) for way in ways if way.level == "ops"}
        return Turns(taken, {name: last_step(path) for name, path in journals.items()})


def last_step(journal: Path) -> StepOps:
    """Return the ops of the last step but one in a file of ops: the last one may be incomplete."""
    steps: dict[int, list[int]] = {}
    with journal.open(encoding="utf-8") as lines:
        for line in lines:
            op = json.loads(line)
            sizes = [math.prod(shape) * getattr(torch, dtype).itemsize for dtype, shape in op["outputs"]]
            steps.setdefault(op["step"], []).append(sum(sizes))
            steps.pop(op["step"] - 3, None)
    chosen = steps[max(steps) - 1]
    return StepOps(len(chosen), sum(chosen))


def _connection(server: socket.socket, process: subprocess.Popen[bytes], log: Path) -> TextIO:
    """Return the lines that the next process sends and receives."""
    for _ in range(START):
        try:
            connection, _ = server.accept()
        except TimeoutError:
            if process.poll() is not None:
                raise SystemExit(f"{log.stem} has ended before its first turn: {_last(log)}") from None
        else:
            with connection:
                connection.settimeout(None)
                return connection.makefile("rw", encoding="utf-8")
    raise SystemExit(f"{log.stem} has not taken a turn within {START} s: {_last(log)}")


def _last(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()[-1000:]
