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
    """The results of the script by itself; `losses` are those that it prints."""

    stdout: bytes
    exit_code: int
    losses: tuple[float, ...]
    parameters: Counter[Tensor]
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run of a habit in one mode, and the bare run that it is compared with; that is None where it cannot work."""

    habit: Habit
    mode: str
    run: RecordedRun
    bare: Bare | None

    @property
    def wrong(self) -> tuple[str, ...]:
        """A line for everything that is not as it should be; where it cannot work, the run has to say why."""
        if self.bare is None:
            return () if self.says_why else (f"{self.message}, expected {self.habit.not_in[self.mode]}",)
        if not self.habit.rounds_in(self.mode):
            return tuple(differences(self.habit, self.bare, self.run))
        recorded = recorded_losses(self.run)
        as_many = len(recorded) == len(self.bare.losses)
        if as_many and np.allclose(recorded, self.bare.losses, rtol=ROUNDING, atol=ROUNDING):
            return ()
        return (f"losses {recorded}, bare {self.bare.losses} {self.message}",)

    @property
    def message(self) -> str:
        return self.run.manifest.message

    @property
    def says_why(self) -> bool:
        """Whether the run itself gives the reason why the habit cannot work in this mode."""
        doubts = [event["text"] for event in self.run.journal.events("doubt")]
        return any(self.habit.not_in[self.mode] in text for text in [self.message, *doubts])

    @property
    def overhead(self) -> float:
        """The seconds of the process divided by those of the bare one."""
        return 0.0 if self.bare is None else self.run.manifest.seconds / self.bare.seconds


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of both runs: those that numdrift sets in every mode, and a fixed hash seed."""
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **variables}


def run_bare(habit: Habit, mode: str, folder: Path, scripts: Path = SCRIPTS, *, forked: bool = False) -> Bare:
    """Run the script by plain Python; for another device in a copy of `scripts` in which that device is written."""
    device = DEVICES[mode]
    if habit.cuda or (device != "cpu" and not habit.reads_device):
        scripts = folder / "scripts"
        shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
        (scripts / habit.script).write_text(habit.on(device), encoding="utf-8")
    result = folder / "bare.json"
    command = [*habit.program, *habit.arguments]
    variables = environment(
        PYTHONPATH=os.pathsep.join([str(BARE), str(ROOT / "src")] if mode == "xla" else [str(BARE)]),
        BARE_MODE=mode,
        BARE_RESULT=str(result),
        BARE_COMPILE="off" if mode != "compile" else "own" if habit.compiles_model else "outermost",
        DEVICE=device,
    )
    started = time.monotonic()
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
    return Bare(done.stdout, done.returncode, printed_losses(done.stdout), parameters, seconds)


def printed_losses(stdout: bytes) -> tuple[float, ...]:
    """Return the losses in the order in which the script printed them."""
    return tuple(map(float, re.findall(rf"\bloss:? {NUMBER}", stdout.decode(errors="replace"))))


def run_recorded(
    habit: Habit, modes: Sequence[str], folder: Path, *, forked: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the script in these modes by one call of numdrift, in the folder of the scripts."""
    run = ["run", "--modes", ",".join(modes), "--out", str(folder), "--name", "habit"]
    command = [*run, *habit.program, "--", *habit.arguments]
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
    """Yield a line for everything in which the recorded run differs from the bare one, or from the habit's entry."""
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
    if (losses := recorded_losses(run)) != bare.losses:
        yield f"losses {losses}, bare {bare.losses}"
    if not bare.parameters:
        yield "the bare run showed no parameter"
    if missing := bare.parameters - recorded_parameters(run):
        dtypes = Counter(journal.dtypes().values())
        yield f"{missing.total()} of {bare.parameters.total()} parameters differ after the last step ({dict(dtypes)})"


def recorded_losses(run: RecordedRun) -> tuple[float, ...]:
    """Return all losses of all steps."""
    return tuple(loss for step in run.journal.steps for loss in step.losses)


def recorded_parameters(run: RecordedRun) -> Counter[Tensor]:
    """Return the values after the last step. NumPy has no bfloat16, so its values are read as their 16 bits."""
    journal = run.journal
    if not journal.value_steps:
        return Counter()
    dtypes, parameters = journal.dtypes(), Counter[Tensor]()
    for name, array in journal.values(journal.value_steps[-1]).items():
        is_bfloat16 = dtypes[name] == "bfloat16"
        plain = (array.view(np.uint32) >> 16).astype(np.uint16) if is_bfloat16 else array
        digest = hashlib.sha256(np.ascontiguousarray(plain).tobytes()).hexdigest()
        parameters[tuple(array.shape), dtypes[name], digest] += 1
    return parameters


def try_habit(habit: Habit, modes: Sequence[str], folder: Path, *, forked: bool = False) -> list[Outcome]:
    """Run a habit in these modes, recorded and, where it can work there, bare. A bare run serves all its modes."""
    folder.mkdir(parents=True, exist_ok=True)
    # Beside xla the others would run in its environment, with another torch.
    for batch in ([mode for mode in modes if mode != "xla"], [mode for mode in modes if mode == "xla"]):
        if batch:
            done = run_recorded(habit, batch, folder, forked=forked)
    if not (folder / "habit").exists():
        raise RuntimeError(f"numdrift started nothing: {done.stderr}")
    bare_modes = {mode: "cpu" if mode in habit.on_cpu else mode for mode in modes if mode not in habit.not_in}
    bares = {}
    for mode in dict.fromkeys(bare_modes.values()):
        (folder / f"bare-{mode}").mkdir()
        bares[mode] = run_bare(habit, mode, folder / f"bare-{mode}", forked=forked)
    return [
        Outcome(habit, mode, load_run(folder / "habit" / mode), bares.get(bare_modes.get(mode, ""))) for mode in modes
    ]
