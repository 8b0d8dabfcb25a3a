"""A habit's script run bare and under numdrift, and the two compared with each other bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from numdrift import load_run
from numdrift.harness.runs.recorded_run import RecordedRun

from ..conftest import ROOT
from ..processes.forked import numdrift_in, python_bytes
from .habit import SCRIPTS, Habit

BARE = Path(__file__).parent / "bare"
DEVICES = {"cpu": "cpu", "compile": "cpu", "lazy": "lazy", "xla": "xla"}
XLA_PYTHON = ROOT / ".venv-xla/bin/python"
"""Of the environment that `scripts/xla` makes; mode `xla` runs in it, and so does its bare run."""

ROUNDING = 1e-3
"""Far above what other kernels change in the losses of these few steps, relative to a loss of about 1."""

TIMEOUT = 400
NUMBER = r"(-?(?:\d[\d.e+-]*|inf|nan))"

Tensor = tuple[tuple[int, ...], str, str]
"""Shape, dtype and SHA-256 of its bytes."""


@dataclass(frozen=True, slots=True)
class Bare:
    """What the script gives by itself. `losses` are those that it prints, `on_cpu` says that it ran in place of a
    mode for whose device it has no word."""

    stdout: bytes
    exit_code: int
    losses: tuple[float, ...]
    parameters: Counter[Tensor]
    seconds: float
    on_cpu: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a habit went in one mode: `wrong` has a line for everything that is not as it should be, `found` is where
    its loss was found. `bare` is None where it was not run."""

    habit: Habit
    mode: str
    run: RecordedRun
    bare: Bare | None

    @property
    def wrong(self) -> tuple[str, ...]:
        if self.mode == "lazy" and self.habit.lazy_rounds:
            return () if self.run.manifest.status == "complete" else (self.message,)
        if self.mode == "xla" and self.habit.xla_rounds and self.bare is not None:
            recorded = [loss for step in self.run.journal.steps for loss in step.losses]
            close = np.allclose(recorded, self.bare.losses, rtol=ROUNDING, atol=ROUNDING)
            return () if close else (f"losses {recorded}, bare {self.bare.losses} {self.message}",)
        return () if self.bare is None else tuple(differences(self.habit, self.bare, self.run))

    @property
    def message(self) -> str:
        return self.run.manifest.message

    @property
    def doubts(self) -> list[str]:
        return [event["text"] for event in self.run.journal.events("doubt")]

    @property
    def found(self) -> str:
        losses = self.run.manifest.adopted.get("loss", [])
        return str(losses[0]["source"]).removeprefix(f"{SCRIPTS}/") if losses else ""

    @property
    def overhead(self) -> float:
        """Seconds of the process against those of the bare one."""
        return 0.0 if self.bare is None else self.run.manifest.seconds / self.bare.seconds


def environment(**variables: str) -> dict[str, str]:
    """The variables that both runs have: what numdrift sets in every mode, and a fixed hash seed."""
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **variables}


def run_bare(habit: Habit, mode: str, folder: Path, scripts: Path = SCRIPTS, *, forked: bool = False) -> Bare:
    """Run the script by plain python; for another device in a copy of `scripts` in which that device is written."""
    rounds = habit.lazy_rounds if mode == "lazy" else habit.xla_rounds and habit.lazy_as_cpu
    on_cpu = bool(rounds) if mode == "xla" else mode == "lazy" and bool(habit.lazy_as_cpu or rounds)
    mode = "cpu" if on_cpu else mode
    device = DEVICES[mode]
    if habit.cuda or (device != "cpu" and not habit.reads_device):
        scripts = folder / "scripts"
        shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
        (scripts / habit.script).write_text(habit.on(device), encoding="utf-8")
    result = folder / f"bare-{mode}.json"
    started = time.monotonic()
    command = [*(["-m", habit.module] if habit.module else [habit.script]), *habit.arguments]
    variables = environment(
        PYTHONPATH=os.pathsep.join([str(BARE), str(ROOT / "src")] if mode == "xla" else [str(BARE)]),
        BARE_MODE=mode,
        BARE_RESULT=str(result),
        BARE_COMPILE="off" if mode != "compile" else "own" if habit.compiles_model else "outermost",
        DEVICE=device,
    )
    if forked and mode != "xla":
        done = python_bytes(scripts, *command, timeout=TIMEOUT, **variables)
    else:
        done = subprocess.run(
            [XLA_PYTHON if mode == "xla" else sys.executable, *command],
            cwd=scripts,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    seconds = time.monotonic() - started
    if done.returncode != habit.exit_code:
        raise RuntimeError(f"bare {habit.script} in {mode} ended with {done.returncode}:\n{done.stderr.decode()}")
    tensors = json.loads(result.read_text(encoding="utf-8"))
    parameters = Counter((tuple(shape), dtype, digest) for shape, dtype, digest in tensors)
    return Bare(done.stdout, done.returncode, printed_losses(habit, done.stdout), parameters, seconds, on_cpu)


def printed_losses(habit: Habit, stdout: bytes) -> tuple[float, ...]:
    """The losses in the order in which the script printed them."""
    found = re.findall(rf"\b{habit.printed}:? {NUMBER}", stdout.decode(errors="replace"))
    return tuple(map(float, found))


def run_recorded(
    habit: Habit, modes: Sequence[str], folder: Path, *, forked: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the script in these modes by one call of numdrift, in the folder of the scripts."""
    started_as = ["-m", habit.module] if habit.module else [habit.script]
    run = ["run", "--modes", ",".join(modes), "--out", str(folder), "--name", "habit", *started_as]
    command = [*run, "--", *habit.arguments]
    if forked:
        return numdrift_in(SCRIPTS, *command, timeout=TIMEOUT * len(modes))
    return subprocess.run(
        [str(Path(sys.executable).with_name("numdrift")), *command],
        cwd=SCRIPTS,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT * len(modes),
    )


def differences(habit: Habit, bare: Bare, run: RecordedRun) -> Iterator[str]:
    manifest, journal = run.manifest, run.journal
    if manifest.exit_code != bare.exit_code:
        yield f"exit code {manifest.exit_code} ({manifest.message}), bare {bare.exit_code}"
    stdout = (run.path / "stdout.log").read_bytes()
    if stdout != bare.stdout:
        yield f"stdout is {stdout[-300:]!r}, bare {bare.stdout[-300:]!r}"
    if any(notice for notice in journal.events("notice") if notice.get("broken")):
        yield f"recording broke: {manifest.notices}"
    counts = tuple(len(step.losses) for step in journal.steps)
    if counts != habit.losses_of_steps:
        yield f"losses a step {counts}, expected {habit.losses_of_steps}"
    recorded = tuple(loss for step in journal.steps for loss in step.losses)
    if recorded != bare.losses:
        yield f"losses {recorded}, bare {bare.losses}"
    if not bare.parameters:
        yield "the bare run showed no parameter"
    if missing := bare.parameters - recorded_parameters(run):
        held = Counter(journal.dtypes().values())
        yield f"{missing.total()} of {bare.parameters.total()} parameters differ after the last step ({dict(held)})"


def recorded_parameters(run: RecordedRun) -> Counter[Tensor]:
    """The values after the last step; bfloat16, which NumPy lacks, as its 16 bits."""
    journal = run.journal
    if not journal.value_steps:
        return Counter()
    dtypes, found = journal.dtypes(), Counter[Tensor]()
    for name, array in journal.values(journal.value_steps[-1]).items():
        bits = array.view(np.uint32) >> 16 if dtypes[name] == "bfloat16" else array
        plain = bits.astype(np.uint16) if dtypes[name] == "bfloat16" else bits
        digest = hashlib.sha256(np.ascontiguousarray(plain).tobytes()).hexdigest()
        found[tuple(array.shape), dtypes[name], digest] += 1
    return found


def try_habit(
    habit: Habit, modes: Sequence[str], folder: Path, *, bare: bool = True, forked: bool = False
) -> list[Outcome]:
    """Run a habit in these modes, recorded and, where it can work there, bare."""
    folder.mkdir(parents=True, exist_ok=True)
    # Beside xla the others would run in its environment, with another torch.
    for together in ([mode for mode in modes if mode != "xla"], [mode for mode in modes if mode == "xla"]):
        if together:
            done = run_recorded(habit, together, folder, forked=forked)
    if not (folder / "habit").exists():
        raise RuntimeError(f"numdrift started nothing: {done.stderr}")
    outcomes = []
    for mode in modes:
        own = folder / f"bare-{mode}"
        own.mkdir()
        run = load_run(folder / "habit" / mode)
        works = bare and mode not in habit.not_in
        outcomes.append(Outcome(habit, mode, run, run_bare(habit, mode, own, forked=forked) if works else None))
    return outcomes
