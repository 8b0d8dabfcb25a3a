"""The folder of a batch: its plan, a folder for each task, and the rows that the tasks' results make.

runs/experiments/main/          the file's name, and the suffix
    batch.json                  the plan: the tasks of the file
    batch.lock                  who drives the batch; locked as long as that process lives
    sam-short/                  a task: an ordinary investigation, and the files of harness/engines/engine_task.py
    submitit/                   logs of the engine, if it writes any
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..engines.engine_task import FINISHED, TaskEnd, read_end
from ..errors import RunNotFound, UsageError
from ..records.codec import FileForm, Unreadable, json_text, put
from ..records.results.findings import INVESTIGATION, RUN_FAILED, Findings, PairFindings
from ..records.results.op_table import FAILED
from ..records.results.task_table import NOT_RUN, PlannedTask, TaskRow, TaskTable
from ..report.answer import answer_of

BATCH, LOCK = "batch.json", "batch.lock"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The tasks of a batch, in the order of the rows. `file` is the file that describes them."""

    file: str
    tasks: Sequence[PlannedTask]
    schema: int = 1

    def write(self, folder: Path) -> None:
        put(folder / BATCH, json_text(self, indent=1))


FORM = FileForm(PlannedBatch, remedy="run `numdrift batch` with the file of the experiments again")


@contextmanager
def driven(folder: Path) -> Iterator[None]:
    """Lock a batch for this process. Create its folder, and remove it again if nothing is written into it.

    Raises UsageError if another process drives the batch. A process that was killed drives nothing any more.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to ({error.strerror}); choose another --out") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{folder} is already driven by {_driver(folder)}; wait for it, or choose another folder with --suffix "
                "or --name"
            ) from None
        except OSError as error:
            raise UsageError(f"{folder} cannot be locked ({error.strerror}); choose another --out") from None
        lock.truncate(0)
        lock.write(json.dumps({"host": socket.gethostname(), "process": os.getpid(), "began": time.time()}))
        lock.flush()
        try:
            yield
        finally:
            if not (folder / BATCH).exists():
                (folder / LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # not empty
                    for path in created:
                        path.rmdir()


def _driver(folder: Path) -> str:
    try:
        facts = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        return f"process {facts['process']} on {facts['host']}, since {time.ctime(facts['began'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def read_batch(folder: Path) -> PlannedBatch:
    """Return the plan of a batch. Raises RunNotFound for a folder that is none, JournalError if it is damaged."""
    try:
        return FORM.read(folder / BATCH)
    except FileNotFoundError:
        raise RunNotFound(
            f"{folder} is not a batch; name the TOML file of its experiments, or a folder that `numdrift batch` wrote"
        ) from None


def table_of(folder: Path, reused: int = 0, seconds: float = 0.0) -> TaskTable:
    """Return the rows of a batch as its folder has them now. Raises as `read_batch` does."""
    batch = read_batch(folder)
    rows = [row for task in batch.tasks for row in rows_of(task, folder / task.name)]
    return TaskTable(str(folder), batch.file, rows, reused, round(seconds, 3))


def rows_of(task: PlannedTask, folder: Path) -> list[TaskRow]:
    """Return the rows of a task: one for each mode that is compared with the reference."""
    end = read_end(folder)
    findings = _findings(folder) if end is not None and end.exit_code in (*FINISHED, RUN_FAILED) else None
    pairs = {} if findings is None else {pair.b: pair for pair in findings.pairs}
    rows = []
    for mode in task.names[1:]:
        row = TaskRow(
            task.name, task.experiment, task.script, task.names[0], mode, NOT_RUN, "the task has not ended",
            arguments=task.arguments, labels=task.labels, folder=str(folder),
        )  # fmt: skip
        if end is not None:
            row = replace(row, seconds=end.seconds, attempts=end.attempts, host=end.host)
            pair = pairs.get(mode)
            row = _of_pair(row, pair) if pair is not None else replace(row, verdict=FAILED, text=reason_of(end))
        rows.append(row)
    return rows


def _of_pair(row: TaskRow, pair: PairFindings) -> TaskRow:
    """Return the row with what an investigation found about its pair."""
    causes = [culprit.op or culprit.name for culprit in pair.culprits if culprit.is_proven]
    return replace(
        row,
        verdict=pair.verdict,
        text=answer_of(pair).sentence,
        z=pair.score,
        threshold=pair.threshold,
        step=pair.first_significant_step,
        causes=list(dict.fromkeys(filter(None, causes))),
    )


def reason_of(end: TaskEnd) -> str:
    """Return why a task has no answer: what its command said last, and how it ended."""
    if end.was_killed:
        try:
            name = signal.Signals(-end.exit_code).name
        except ValueError:
            name = f"signal {-end.exit_code}"
        how = f"its process was ended by {name}, in attempt {end.attempts}"
        return f"{how}: {end.message}" if end.message else how
    return end.message.removeprefix("numdrift: ") or f"it ended with exit code {end.exit_code}"


def _findings(folder: Path) -> Findings | None:
    try:
        return Findings.from_json(json.loads((folder / INVESTIGATION).read_text(encoding="utf-8")))
    except (OSError, ValueError, Unreadable):
        return None
