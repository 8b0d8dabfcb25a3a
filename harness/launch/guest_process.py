"""Starts guest processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..errors import UsageError
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec

PACKAGE = Path(__file__).absolute().parents[2]
"""The folder that contains numdrift's `__init__.py`: in an installation, or through the links of a source checkout."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start. Its output streams go directly to files.

    timeout: in seconds
    variables: variables added to its environment; some must be set before torch is imported
    others: the other ranks, if this is rank 0 of a run of several processes
    reads_input: true if the process reads this process's standard input
    held: true if the process stays alive and answers requests after its script has ended without an error
    inherited: environment variables that the process starts from; None for those of this process
    trains: false if the process makes calls of a function instead
    imports: further modules that may already be imported in the process, if it is forked
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
    held: bool = False
    inherited: Mapping[str, str] | None = None
    trains: bool = True
    imports: tuple[str, ...] = ()


def interpreter(spec: ModeSpec) -> str:
    """Return the Python that a mode runs in. Raises UsageError if the mode names a program that does not exist."""
    if spec.python is None:
        return sys.executable
    path = shutil.which(spec.python)
    if path is None:
        raise UsageError(f"mode {spec.name!r}: python={spec.python} is not a program on this machine")
    return path


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Environment variables that control how OpenMP's threads wait for work."""


REPEATING_VARIABLES: Mapping[str, str] = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring"}
"""The variables without which cuBLAS and NCCL may sum in a different order each time.

The libraries read them when they start, so torch cannot set them later. Without its variable, NCCL chooses among
several algorithms, and some of them let the network do the addition.
"""


def environment(spec: ModeSpec, inherited: Mapping[str, str], *, alone: bool = False) -> dict[str, str]:
    """Return the process's variables.

    They are the inherited ones, the same hash seed in every mode, and those that the mode states.

    Threads that wait for work sleep, unless the user's variables say otherwise. By default OpenMP's threads spin, and
    modes that train side by side would take each other's processors (char_gpt in cpu and compile on 2 cores: 22 s
    instead of 15 s). The division of the work among threads, and so every bit, stays the same. A process that works
    `alone` is quicker with OpenMP's default: its threads need not be woken for each op (a hybrid of char_gpt: 0.3 s
    instead of 0.7 s).
    """
    variables = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", **inherited}
    if not alone and not any(name in variables for name in WAITING):
        variables["OMP_WAIT_POLICY"] = "passive"
    # Scripts read their device from DEVICE, which the mode sets: a DEVICE of the user's shell would change every mode.
    variables.pop("DEVICE", None)
    if spec.deterministic not in (None, "off") and spec.accelerator is not None:
        for name, value in REPEATING_VARIABLES.items():
            variables.setdefault(name, value)
    if spec.contract == "off" and spec.accelerator is not None:  # on a device, Inductor leaves it to Triton
        variables["TRITON_DEFAULT_FP_FUSION"] = "0"
    if spec.threads is not None:
        variables |= {name: str(spec.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return variables | dict(spec.env)


def guest_command(config: Path, *, python: str = sys.executable, module: str = "") -> list[str]:
    """Return the command that starts a process with a configuration.

    The process runs the recorder, or the `main` of another `module` of numdrift.
    """
    command = [python, str(PACKAGE / "harness/recorder/bootstrap.py"), str(PACKAGE), str(config)]
    return [*command, module] if module else command


TORCH = ("torch",)
"""The module that every process imports before its script."""

EAGER = (*TORCH, "torch._dynamo")
"""Modules that every training process imports, the second one with its first optimizer."""

COMPILER = (*EAGER, "torch._inductor.compile_fx")
"""Modules that a training process imports if its mode compiles: those of EAGER and the compiler's."""


OF_SAMPLES = ("torch.testing._internal.common_methods_invocations",)
"""The module with the samples of PyTorch's ops, which takes seconds to import."""


def preloadable(*specs: ModeSpec) -> tuple[str, ...]:
    """Return the modules that may already be imported in a process that executes tapes of these modes.

    The result is empty for a process that has to be started: the modes of plug-ins, and of most devices, need a process
    that is not forked, because drivers do not survive a fork.
    """
    names = {name for spec in specs for name in (spec.base, (spec.accelerator or spec.base).partition(":")[0])}
    return EAGER if all(name in registry.names() and registry.entry(name).forks for name in names) else ()


def imported_by(spec: ModeSpec, *, trains: bool = True) -> tuple[str, ...]:
    """Return the modules that may already be imported in a process when it starts a run in this mode.

    A run that does not train makes calls of a function.
    """
    if not preloadable(spec) or spec.capabilities.compiles:
        return COMPILER if preloadable(spec) else ()
    return EAGER if trains else TORCH


@dataclass(frozen=True, slots=True)
class Guest:
    """One guest process.

    config: its configuration
    environment: all of its variables
    module: the module of numdrift whose `main` it runs; empty for the recorder
    imports: modules that may already be imported; empty if the process has to be started
    """

    config: Path
    environment: Mapping[str, str]
    python: str = sys.executable
    module: str = ""
    imports: tuple[str, ...] = ()


def inherited_by(launch: Launch) -> Mapping[str, str]:
    """Return the variables that the process of a launch starts from."""
    return os.environ if launch.inherited is None else launch.inherited


def guest_of(launch: Launch) -> Guest:
    spec = launch.spec
    imports = imported_by(spec, trains=launch.trains)
    return Guest(
        config=launch.config,
        environment=environment(spec, inherited_by(launch)) | dict(launch.variables),
        python=interpreter(spec),
        imports=() if launch.reads_input or not imports else (*imports, *launch.imports),
    )


class GuestProcess(Protocol):
    """A process that was started, such as a `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


class Processes(Protocol):
    """A source of guest processes."""

    def expect(self, guests: Sequence[Guest]) -> None:
        """Announce guests that will be started soon."""

    def start(self, guest: Guest, stdout: int, stderr: int, *, stdin: int | None = subprocess.DEVNULL) -> GuestProcess:
        """Start a process in a separate session, so that signals of the terminal reach it only through this process."""


class StartedProcesses:
    """Starts each process anew, as a shell does."""

    def expect(self, guests: Sequence[Guest]) -> None:
        pass

    def start(self, guest: Guest, stdout: int, stderr: int, *, stdin: int | None = subprocess.DEVNULL) -> GuestProcess:
        return subprocess.Popen(
            guest_command(guest.config, python=guest.python, module=guest.module),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=guest.environment,
            start_new_session=True,
        )


def start(launch: Launch, processes: Processes | None = None) -> GuestProcess:
    """Start the process of a launch, with the launch's files as its output streams."""
    with launch.stdout.open("ab") as stdout, launch.stderr.open("ab") as stderr:
        return (processes or StartedProcesses()).start(
            guest_of(launch), stdout.fileno(), stderr.fileno(), stdin=None if launch.reads_input else subprocess.DEVNULL
        )


def run_to_end(command: Sequence[str], spec: ModeSpec, timeout: float | None) -> subprocess.CompletedProcess[str]:
    """Run a command with the variables of a mode and without input, and return its exit code and its output as text.

    Raises OSError, and TimeoutExpired after `timeout` seconds.
    """
    return subprocess.run(
        command,
        env=environment(spec, os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
    )
