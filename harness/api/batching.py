"""`numdrift.batch` and `numdrift batch`: many investigations from one file, executed by an engine."""

from __future__ import annotations

import fcntl
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..batches.batch_folder import BATCH, PlannedBatch, driven, read_batch, rows_of, table_of
from ..batches.experiments_file import ExperimentTask, tasks_of_file
from ..engines.engine import LOCAL, EngineSettings, chosen_engine, require_shared
from ..engines.engine_task import END, LOCK, EngineTask, TaskEnd, passed_on, read_end, read_task
from ..errors import UsageError
from ..investigate.experiments.laboratory import Progress
from ..records.results.task_table import PlannedTask, TableComparison, TaskTable, compared_tables
from ..runs.run_layout import check_name
from .api_running import listener, passive_threads

PLACED = 8
"""The number of the words of a task's command that name its interpreter and its folder, not what it investigates."""

SUFFIX = "main"
"""The suffix of a batch unless the user states another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsRequest:
    """The request for a batch of experiments.

    file: the file with the experiments
    name: the name of the batch; by default, that of the file
    engine, jobs, retries, engine_options, shared: see `EngineSettings`
    """

    file: Path
    name: str | None = None
    suffix: str = SUFFIX
    out: Path = Path("runs")
    engine: str = LOCAL
    jobs: int | None = None
    retries: int = 1
    engine_options: Mapping[str, str] = field(default_factory=dict)
    shared: str = ""
    force: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the batch. Raises UsageError for a name that cannot be part of a file name."""
        name = check_name("--name", self.name if self.name is not None else self.file.stem)
        return self.out / name / check_name("--suffix", self.suffix)


def batch(
    file: Path | str,
    *,
    name: str | None = None,
    suffix: str = SUFFIX,
    out: Path | str = "runs",
    engine: str = LOCAL,
    jobs: int | None = None,
    retries: int = 1,
    engine_options: Mapping[str, str] | None = None,
    shared: str = "",
    force: bool = False,
    progress: bool = False,
) -> TaskTable:
    """Investigate all experiments of a TOML file, as `numdrift batch` does.

        found = numdrift.batch("experiments.toml", jobs=2)
        [(row.task, row.mode, row.verdict) for row in found.rows]

    Each task is an investigation in a folder of its own in `out/name/suffix`; by default, the name is that of the file.
    Tasks that are done are not executed again, unless `force` is set. `engine` is local, submitit or ray, with its
    `engine_options`. Without a shared file system, results travel by the URL `shared`, for example of an object store.
    At most `jobs` tasks run at the same time. A task whose process is killed is executed again, at most `retries`
    times.

    Raises UsageError before anything is started, and KeyboardInterrupt if Ctrl-C ends the tasks.
    """
    request = ExperimentsRequest(
        file=Path(file), name=name, suffix=suffix, out=Path(out), engine=engine, jobs=jobs, retries=retries,
        engine_options=engine_options or {}, shared=shared, force=force,
    )  # fmt: skip
    return batched(request, listener(progress))


def compare_batches(before: Path | str, after: Path | str) -> TableComparison:
    """Compare two batches, as `numdrift batch AFTER --against BEFORE` does: which verdicts, causes and scores changed.

        numdrift.compare_batches("runs/experiments/main", "runs/experiments/new").changes

    Both are folders of batches; rows with the same task and mode are compared. Raises UsageError for another folder.
    """
    return compared_tables(table_of(Path(before)), table_of(Path(after)))


def batch_against(folder: Path, other: str) -> Path:
    """Return the folder of the batch that a batch is compared with: a suffix of the same name, or a folder.

    Raises UsageError.
    """
    beside = folder.parent / other
    if "/" not in other and (beside / BATCH).exists():
        return beside
    read_batch(Path(other))
    return Path(other)


def batched(request: ExperimentsRequest, progress: Progress) -> TaskTable:
    """Execute a batch for `numdrift.batch` and `numdrift batch`. Raises UsageError and KeyboardInterrupt."""
    began = time.monotonic()
    tasks, folder = tasks_of_file(request.file), request.folder.absolute()
    settings = EngineSettings(folder, request.jobs, request.retries, request.engine_options, request.shared)
    with driven(folder), passive_threads():
        waiting = _waiting(request, tasks, folder)
        counted = _Progress(progress, {task.plan.name: task.plan for task in tasks}, folder, len(waiting))
        if waiting:
            progress.say(f"{len(waiting):,} of {len(tasks):,} tasks to do, on the engine {request.engine}")
            with chosen_engine(request.engine, settings) as engine:
                require_shared(engine, settings, Path(sys.executable))
                PlannedBatch(str(request.file), [task.plan for task in tasks]).write(folder)
                engine.execute(_written(waiting, force=request.force), counted.ended)
        PlannedBatch(str(request.file), [task.plan for task in tasks]).write(folder)
        return table_of(request.folder, len(tasks) - len(waiting), time.monotonic() - began)


def _waiting(request: ExperimentsRequest, tasks: Sequence[ExperimentTask], folder: Path) -> list[EngineTask]:
    """Return the tasks that are not done, with `force` all. Raises UsageError for one that was done differently."""
    waiting = []
    environment = passed_on()
    for task in tasks:
        name, own = task.plan.name, folder / task.plan.name
        command = [sys.executable, "-m", "numdrift", "investigate", "--name", name, "--out", str(folder)]
        assert len(command) == PLACED
        command += task.words
        wanted = EngineTask(
            name,
            command,
            own,
            request.file.parent.resolve(),
            environment,
            task.resources,
            task.script,
            task.script_sha256,
        )
        earlier, end = read_task(own), read_end(own)
        if end is not None and end.is_finished and not request.force:
            if earlier is None or _identity(earlier) != _identity(wanted):
                raise UsageError(
                    f"{own} was done with another version of {task.plan.script}, or with other modes, options or "
                    f"arguments than {request.file} now states; choose another --suffix, or replace all tasks with "
                    "--force"
                )
            continue
        waiting.append(wanted)
    return waiting


def _identity(task: EngineTask) -> tuple[Sequence[str], str]:
    """Return what a task executes, whichever interpreter and folder it has."""
    return list(task.command)[PLACED:], task.script_sha256


def _throw_away(folder: Path) -> None:
    """Remove the folder of a task. Raises UsageError if its process still runs."""
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"the task in {folder} still runs, so it is not replaced; wait for its end") from None
        shutil.rmtree(folder)


def _written(tasks: Sequence[EngineTask], *, force: bool) -> Iterator[EngineTask]:
    """Yield tasks, each with its file written.

    The folder of a task that has changed since it was begun is removed, because its runs are of no use, and so are all
    folders with `force`.
    """
    for task in tasks:
        earlier = read_task(task.folder)
        if earlier is not None and (force or _identity(earlier) != _identity(task)):
            _throw_away(task.folder)
        (task.folder / END).unlink(missing_ok=True)
        task.write()
        yield task


@dataclass
class _Progress:
    """Reports each task that has ended, with its verdicts."""

    progress: Progress
    plans: Mapping[str, PlannedTask]
    folder: Path
    total: int
    count: int = 0

    def ended(self, task: EngineTask, end: TaskEnd) -> None:
        self.count += 1
        rows = rows_of(self.plans[task.name], task.folder)
        outcomes = ", ".join(f"{row.mode} {row.word}" for row in rows)
        elsewhere = f" on {end.host}" if end.host not in ("", socket.gethostname()) else ""
        self.progress.say(f"{task.name}: {outcomes} ({end.seconds:.1f} s{elsewhere}, {self.count:,} of {self.total:,})")
