"""`numdrift.run`: records a script in several modes, a process each. Also the listeners of the Python interface."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from ..errors import RunNotFound, nearest
from ..launch.batch_kernels import OwnKernels, own_kernels
from ..launch.batch_plan import BatchPlan, planned
from ..launch.execute_batch import execute
from ..launch.journal_tail import JournalProgress
from ..launch.running_process import ProcessEnd
from ..launch.supervise import Reporter
from ..records.modes.mode_spec import ModeSpec, parse_modes
from ..records.run.run_request import RunOptions, requested, user_options
from ..runs.recorded_run import RecordedRun, load_run, pandas
from .api_recording import Recording

if TYPE_CHECKING:
    import pandas as pd

POLICY = "OMP_WAIT_POLICY"
OF_PLAN = ("suffix", "nproc", "timeout", "jobs", "strict", "force", "pass_through")
"""Fields of a `BatchPlan` that users set directly."""

Options = TypeVar("Options", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The runs of one call of `run` in the order of their modes; `path` is their folder.

    `exit_code` is as on the command line: 0 if every run completed, 3 if one did not, 2 for an invalid mode."""

    path: Path
    runs: Sequence[RecordedRun]
    exit_code: int

    def __getitem__(self, mode: str) -> RecordedRun:
        """Return the run of the mode with this name. Raises RunNotFound, which names the modes that exist."""
        runs_by_mode = {run.manifest.mode: run for run in self.runs}
        if mode not in runs_by_mode:
            raise RunNotFound(f"{self.path} has no run of mode {mode!r}: {nearest(mode, runs_by_mode)}")
        return runs_by_mode[mode]

    def losses(self) -> pd.DataFrame:
        """Return the loss of each step: one column per mode, one row per step."""
        frame: pd.DataFrame = pandas().DataFrame({run.manifest.mode: run.losses() for run in self.runs})
        return frame.rename_axis("step")


def with_options(function: Options) -> Options:
    """Make help and notebooks show the options of a `RunRequest` as parameters of a function that takes `**options`."""
    # `**options` alone would hide the options from help and completion
    own = inspect.signature(function)
    *named, _ = own.parameters.values()
    options = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default)
        for option in user_options().values()
    ]
    vars(function)["__signature__"] = own.replace(parameters=[*named, *options])
    return function


@with_options
def run(
    script: Path | str | None = None,
    modes: str | Sequence[str] = ("cpu", "compile"),
    arguments: Sequence[str] = (),
    *,
    module: str | None = None,
    out: Path | str = "runs",
    name: str | None = None,
    suffix: str = "",
    kernels: OwnKernels | None = None,
    resync: Path | str | RecordedRun | None = None,
    nproc: int = 1,
    timeout: float | None = None,
    jobs: int = 1,
    strict: bool = False,
    force: bool = False,
    progress: bool = False,
    **options: Unpack[RunOptions],
) -> RunBatch:
    """Run a script in each mode, each in its own process, and record the runs: `numdrift run`.

        batch = numdrift.run("train.py", ["cpu", "compile"], ["--epochs", "3"], name="study")
        batch["compile"].losses()

    `modes` is a list of modes in full (`"fast=compile,contract=fast"`), or one string of plain modes (`"cpu,compile"`);
    the first is the reference. `arguments` are passed to the script; `module` runs a module, as `-m` does, in place of
    a script. The other options are the command's (docs/guide/run.md): `keep_budget` is in MiB, `timeout` in seconds per
    run, `steps` and similar options are written as `"0,5,10-19"`.

    Prints nothing unless `progress` is set. If a mode fails, its failure is recorded and the other modes still run.
    Raises UsageError before anything is started, and KeyboardInterrupt when Ctrl-C ended the runs."""
    plan = planned_run(
        script,
        specs_of(modes),
        arguments,
        module=module,
        out=out,
        name=name,
        suffix=suffix,
        kernels=kernels,
        resync=resync,
        nproc=nproc,
        timeout=timeout,
        jobs=jobs,
        strict=strict,
        force=force,
        **options,
    )
    teller = told(progress)
    for text in plan.interpreters:
        teller.say(text)
    with passive_threads():
        result = execute(plan, teller)
    if result.interrupted:
        raise KeyboardInterrupt
    # read back from disk, so that a program receives the same data as any other reader
    runs = [load_run(finished.folder.path) for finished in result.runs]
    return RunBatch(plan.investigation.path, runs, result.exit_code)


def planned_run(
    script: Path | str | None,
    modes: Sequence[ModeSpec],
    arguments: Sequence[str],
    *,
    module: str | None,
    out: Path | str,
    name: str | None,
    kernels: OwnKernels | None,
    resync: Path | str | RecordedRun | None,
    **settings: Any,
) -> BatchPlan:
    """Plan the runs of `numdrift.run` and `numdrift run`.

    `settings` are further fields of the plan, and options of a run as users write them. Raises UsageError.
    """
    of_plan = {field: settings.pop(field) for field in OF_PLAN if field in settings}
    options = cast("RunOptions", settings)  # `requested` refuses unknown options
    resync = resync.path if isinstance(resync, RecordedRun) else resync
    return planned(
        script, module, arguments, modes, out, name, resync=resync, kernels=own_kernels(kernels),
        **of_plan, **requested(options),
    )  # fmt: skip


def specs_of(modes: str | Sequence[str]) -> list[ModeSpec]:
    """Return the modes that a string or a sequence names. Raises UsageError and ModeError."""
    return parse_modes(modes) if isinstance(modes, str) else parse_modes(None, list(modes))


def loaded(run: RecordedRun | Recording | Path | str) -> RecordedRun:
    """Return the run itself, or the run of a recording or of a folder."""
    if isinstance(run, Recording):
        return run.run
    return run if isinstance(run, RecordedRun) else load_run(run)


class Silent:
    """A listener to rounds of runs and to runs that prints nothing. `said` has the texts that it received."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def started(self, name: str) -> None:
        """Receive that a run has begun."""

    def progressed(self, name: str, progress: JournalProgress) -> None:
        """Receive the progress of a run."""

    def ended(self, name: str, end: ProcessEnd) -> None:
        """Receive that a run has ended."""

    def say(self, text: str) -> None:
        """Receive a message for the waiting user."""
        self.said.append(text)

    @contextmanager
    def round(self, title: str, names: Sequence[str]) -> Iterator[Reporter]:
        """Yield the reporter of a round of runs."""
        self.say(f"{title}: {', '.join(names)}")
        yield self


class Lines(Silent):
    """A listener that prints a line for each round of runs and for each run that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, JournalProgress] = {}

    def progressed(self, name: str, progress: JournalProgress) -> None:
        self._last[name] = progress

    def ended(self, name: str, end: ProcessEnd) -> None:
        last = self._last.pop(name, None)  # a later round may have a run of the same name
        steps = "no step" if last is None or not last.steps else f"{last.steps:,} steps"
        self.say(f"  {name}: {steps}, {end.seconds:.1f} s")

    def say(self, text: str) -> None:
        super().say(text)
        print(text, file=sys.stderr, flush=True)


def told(shown: bool) -> Silent:
    """Return the listener: a silent one unless progress is `shown`."""
    return Lines() if shown else Silent()


@contextmanager
def passive_threads() -> Iterator[None]:
    """Let the OpenMP threads of processes that are started in this context sleep while they wait. No result changes."""
    # A process inherits the environment of its start. By default OpenMP threads spin while they wait, which slows down
    # everything else.
    is_set = POLICY in os.environ
    os.environ.setdefault(POLICY, "passive")
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(POLICY, None)
