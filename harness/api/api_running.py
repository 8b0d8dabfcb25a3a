"""`numdrift.run`: records a script in several modes, each in its own process.

Also defines the listeners of the Python interface, which show the progress of runs.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack

from ..errors import RunNotFound, nearest
from ..launch.batch_plan import BatchPlan, planned
from ..launch.execute_batch import execute
from ..launch.journal_tail import JournalProgress
from ..launch.running_process import ProcessEnd
from ..launch.supervise import Reporter
from ..launch.training_request import TrainingOptions, TrainingRequest
from ..records.modes.mode_spec import ModeSpec, parse_modes
from ..records.run.run_request import RunOptions, RunRequest
from ..records.run.user_option import option, options_of
from ..runs.recorded_run import RecordedRun, load_run, pandas
from .api_recording import Recording

if TYPE_CHECKING:
    import pandas as pd

POLICY = "OMP_WAIT_POLICY"
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The runs of one call to `run`, in the order of their modes; `path` is their folder.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest(TrainingRequest):
    """The training runs of `numdrift run`, with every option of a run."""

    OF_RUN: ClassVar[Sequence[str]] = tuple(options_of(RunRequest))

    suffix: str = option(
        "", "Tag of this batch of runs, which becomes part of the names of its folders and plots.", metavar="TAG"
    )
    resync: Path | None = option(
        None,
        "Start each step of --steps from the state that RUN kept before that step, so that each step has only its own "
        "drift.",
        lambda run: run.path if isinstance(run, RecordedRun) else Path(run),
        kind=Path,
        metavar="RUN",
    )
    pass_through: bool = False
    """True if the batch's only run reads this process's standard input."""


class BatchOptions(TrainingOptions, RunOptions, total=False):
    """The options of a `BatchRequest` that users can set, by their names in Python."""

    suffix: str
    resync: Path | str | RecordedRun | None


def with_options(options: type, request: type[TrainingRequest]) -> Callable[[Function], Function]:
    """Make `help()` and notebooks show a request's `options` as parameters of a function that takes `**options`."""
    annotations = {
        name: getattr(annotation, "__forward_arg__", annotation) for name, annotation in options.__annotations__.items()
    }
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared.default, annotation=annotations[name])
        for name, declared in request.options().items()
        if name in annotations
    ]

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *parameters])
        return function

    return decorate


@with_options(BatchOptions, BatchRequest)
def run(
    script: Path | str | None = None,
    modes: str | Sequence[str] = ("cpu", "compile"),
    arguments: Sequence[str] = (),
    *,
    progress: bool = False,
    **options: Unpack[BatchOptions],
) -> RunBatch:
    """Run a script in each mode, each in its own process, and record the runs, as `numdrift run` does.

        batch = numdrift.run("train.py", ["cpu", "compile"], ["--epochs", "3"], name="study")
        batch["compile"].losses()

    `modes` is a list of modes with their settings (`"fast=compile,contract=fast"`), or one string of modes without
    settings (`"cpu,compile"`); the first is the reference. `arguments` are passed to the script; `module` runs a
    module, as `-m` does, in place of a script. The other options are the command's (docs/guide/run.md): `keep_budget`
    is in MiB and `timeout` in seconds per run; `steps` and similar options are written as `"0,5,10-19"`.

    Prints nothing unless `progress` is set. If a mode fails, its failure is recorded and the other modes still run.
    Raises UsageError before anything is started, and KeyboardInterrupt if Ctrl-C ends the runs."""
    plan = planned_batch(BatchRequest.of(script, specs_of(modes), arguments, options))
    reporter = listener(progress)
    for text in plan.interpreters:
        reporter.say(text)
    with passive_threads():
        result = execute(plan, reporter)
    if result.interrupted:
        raise KeyboardInterrupt
    # read back from disk, so that a program receives the same data as any other reader
    runs = [load_run(finished.folder.path) for finished in result.runs]
    return RunBatch(plan.investigation.path, runs, result.exit_code)


def planned_batch(request: BatchRequest) -> BatchPlan:
    """Plan the runs of `numdrift.run` and `numdrift run`. Raises UsageError."""
    return planned(request, suffix=request.suffix, resync=request.resync, pass_through=request.pass_through)


def specs_of(modes: str | Sequence[str]) -> list[ModeSpec]:
    """Return the modes that a string or a sequence names. Raises UsageError and ModeError."""
    return parse_modes(modes) if isinstance(modes, str) else parse_modes(None, list(modes))


def loaded(run: RecordedRun | Recording | Path | str) -> RecordedRun:
    """Return the run itself, or the run of a recording or of a folder."""
    if isinstance(run, Recording):
        return run.run
    return run if isinstance(run, RecordedRun) else load_run(run)


class Silent:
    """A listener that prints nothing, for runs and rounds of runs. `texts` are the messages that it received."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def started(self, name: str) -> None:
        """Handle the start of a run."""

    def progressed(self, name: str, progress: JournalProgress) -> None:
        """Handle the progress of a run."""

    def ended(self, name: str, end: ProcessEnd) -> None:
        """Handle the end of a run."""

    def say(self, text: str) -> None:
        """Handle a message for the user."""
        self.texts.append(text)

    def expects(self, seconds: float) -> None:
        """Handle the time that the rest of an investigation takes."""

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
        steps = "no steps" if last is None or not last.steps else f"{last.steps:,} step{'s' if last.steps > 1 else ''}"
        self.say(f"  {name}: {steps}, {end.seconds:.1f} s")

    def say(self, text: str) -> None:
        super().say(text)
        print(text, file=sys.stderr, flush=True)


def listener(shown: bool) -> Silent:
    """Return a listener that prints if progress is `shown`, else a silent one."""
    return Lines() if shown else Silent()


@contextmanager
def passive_threads() -> Iterator[None]:
    """Let waiting OpenMP threads sleep in all processes that start within the context. Results do not change."""
    # OpenMP reads the policy when a process starts. By default, waiting threads spin, which slows down everything else.
    is_set = POLICY in os.environ
    os.environ.setdefault(POLICY, "passive")
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(POLICY, None)
