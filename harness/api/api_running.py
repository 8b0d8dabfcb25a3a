"""`numdrift.run`: a script in several modes, a process each, recorded; and how the Python interface waits for runs."""

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
from ..records.mode_spec import ModeSpec, parse_modes
from ..records.run_request import RunOptions, requested, user_options
from ..runs.recorded_run import RecordedRun, load_run, pandas
from .api_recording import Recording

if TYPE_CHECKING:
    import pandas as pd

POLICY = "OMP_WAIT_POLICY"
OF_PLAN = ("suffix", "nproc", "timeout", "jobs", "strict", "force", "pass_through")
"""Fields of a `BatchPlan` that users set as they are."""

Options = TypeVar("Options", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The runs of one call in the order of their modes; `path` is the folder that they are in.

    `exit_code` is that of the command line: 0 when every run completed, 3 when one did not, 2 for a mode that
    was wrong."""

    path: Path
    runs: Sequence[RecordedRun]
    exit_code: int

    def __getitem__(self, mode: str) -> RecordedRun:
        """Return the run of a mode by its name. Raises RunNotFound, which names the modes that exist."""
        runs_by_mode = {run.manifest.mode: run for run in self.runs}
        if mode not in runs_by_mode:
            raise RunNotFound(f"{self.path} has no run of mode {mode!r}: {nearest(mode, runs_by_mode)}")
        return runs_by_mode[mode]

    def losses(self) -> pd.DataFrame:
        """The loss of each step: a column a mode, a row a step."""
        frame: pd.DataFrame = pandas().DataFrame({run.manifest.mode: run.losses() for run in self.runs})
        return frame.rename_axis("step")


def with_options(function: Options) -> Options:
    """Make help and notebooks show the options of a `RunRequest` as parameters of a function that takes `**options`."""
    # a `**options` alone would hide the possible options from help and completion
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
    """Run a script in each mode, in a process of its own, and record what happens: `numdrift run`.

        batch = numdrift.run("train.py", ["cpu", "compile"], ["--epochs", "3"], name="study")
        batch["compile"].losses()

    `modes` are modes in full (`"fast=compile,contract=fast"`), or one text of plain ones (`"cpu,compile"`);
    the first is the reference. `arguments` go to the script; `module` is the name behind `-m` in place of a
    script. The other options are the command's (docs/guide/run.md): `keep_budget` in MiB, `timeout` in
    seconds a run, `steps` and the like as in `"0,5,10-19"`.

    Prints nothing unless `progress`. A mode that fails is recorded as such and the others go on. Raises
    UsageError before anything is started, KeyboardInterrupt when Ctrl-C ended the runs."""
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
    # read again from disk: a program gets what every other reader gets
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
    """Plan the runs of `numdrift.run` and `numdrift run`; `settings` are other fields of the plan, and options of a run
    as users write them. Raises UsageError."""
    of_plan = {field: settings.pop(field) for field in OF_PLAN if field in settings}
    options = cast("RunOptions", settings)  # which `requested` refuses where it is none
    resync = resync.path if isinstance(resync, RecordedRun) else resync
    return planned(
        script, module, arguments, modes, out, name, resync=resync, kernels=own_kernels(kernels),
        **of_plan, **requested(options),
    )  # fmt: skip


def specs_of(modes: str | Sequence[str]) -> list[ModeSpec]:
    """Return the modes of a text or a sequence. Raises UsageError and ModeError."""
    return parse_modes(modes) if isinstance(modes, str) else parse_modes(None, list(modes))


def loaded(run: RecordedRun | Recording | Path | str) -> RecordedRun:
    """Return the run itself, or the run of a recording or of a folder."""
    if isinstance(run, Recording):
        return run.run
    return run if isinstance(run, RecordedRun) else load_run(run)


class Silent:
    """A listener that prints nothing, for rounds of runs and for runs. `said` has the texts that it received."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def started(self, name: str) -> None:
        """A run has begun."""

    def progressed(self, name: str, progress: JournalProgress) -> None:
        """A run has made progress."""

    def ended(self, name: str, end: ProcessEnd) -> None:
        """A run has ended."""

    def say(self, text: str) -> None:
        """Receive a text that the waiting user should know."""
        self.said.append(text)

    @contextmanager
    def round(self, title: str, names: Sequence[str]) -> Iterator[Reporter]:
        """A round of runs begins."""
        self.say(f"{title}: {', '.join(names)}")
        yield self


class Lines(Silent):
    """A listener that prints a line for each round, and for each run that has ended."""

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
    """Return the listener: a silent one, unless progress is to be shown."""
    return Lines() if shown else Silent()


@contextmanager
def passive_threads() -> Iterator[None]:
    """Have OpenMP threads of processes that are started within sleep while they wait; it changes no result."""
    # Processes take over the environment as it is when they are started. Threads that spin while they wait, OpenMP's
    # default, slow down everything beside them.
    is_set = POLICY in os.environ
    os.environ.setdefault(POLICY, "passive")
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(POLICY, None)
