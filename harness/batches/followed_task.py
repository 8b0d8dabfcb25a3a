"""One task that is executed by an engine, and whose output is shown here while it runs.

The task is a command of numdrift in the folder that it writes to. All machines share this folder, so everything that
the command writes is here as if it had been executed here.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..engines.engine import ENGINES, EngineSettings, chosen_engine, require_shared
from ..engines.engine_task import (
    END,
    GRACE_SECONDS,
    LOG,
    EngineTask,
    TaskEnd,
    attempt_of,
    is_under_way,
    read_task,
)
from ..errors import UsageError
from .batch_folder import driven

EVERY_SECONDS = 0.2
"""The time between two looks at the log of a task."""

Show = Callable[[str], None]
"""A function that is called with each line."""


def executed_task(task: EngineTask, engine: str, settings: EngineSettings, show: Show) -> TaskEnd:
    """Execute a task by an engine, show the lines of its log as they are written, and return how the task ended.

    `settings.folder` is that of the task. If the task travels by a URL, its log is shown when it has ended.

    If the same task still runs, because the process that submitted it was killed, this waits for the end of that one.
    Ctrl-C is passed on to the task, and raised when it has ended and all of its log is shown. Raises UsageError if
    another process drives the folder, if another command still runs in it, and for what the engine refuses.
    """
    ends: list[TaskEnd] = []
    with driven(task.folder):
        runs = is_under_way(task.folder)
        earlier = read_task(task.folder)
        if runs and (earlier is None or list(earlier.command) != list(task.command)):
            raise UsageError(
                f"another command still runs in {task.folder}, on {attempt_of(task.folder)[1]}; wait for its end, or "
                "choose another --name"
            )
        # An interrupted task still writes to its log, also after the end of the engine's context.
        with _followed(task, show, from_start=runs), chosen_engine(engine, settings) as opened:
            if not ENGINES[engine].queues:  # otherwise the look alone would wait for its turn before the task does
                require_shared(opened, settings, Path(sys.executable))
            if not runs:
                (task.folder / END).unlink(missing_ok=True)
                task.write()
            opened.execute([task], lambda _, end: ends.append(end))
    return ends[0]


@contextmanager
def _followed(task: EngineTask, show: Show, *, from_start: bool) -> Iterator[None]:
    """Show the lines that are written to a task's log, and where each attempt runs, in a thread."""
    log, ended = task.folder / LOG, threading.Event()
    begin = 0 if from_start or not log.exists() else log.stat().st_size
    earlier = (0, "") if from_start else attempt_of(task.folder)

    def follow() -> None:
        place, rest, attempt = begin, b"", earlier
        while True:
            is_last = ended.wait(EVERY_SECONDS)
            if (latest := attempt_of(task.folder)) not in (attempt, (0, "")):
                attempt = latest
                show(f"{task.name} runs on {attempt[1]}" + (f", attempt {attempt[0]}" if attempt[0] > 1 else ""))
            try:
                with log.open("rb") as file:
                    file.seek(place)
                    content = file.read()
            except OSError:  # nothing is written yet
                content = b""
            place += len(content)
            *lines, rest = (rest + content).split(b"\n")
            for line in [*lines, rest] if is_last and rest else lines:
                show(line.decode(errors="replace"))
            if is_last:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:  # an engine may end before the interrupted command does
        deadline = time.monotonic() + GRACE_SECONDS
        while is_under_way(task.folder) and time.monotonic() < deadline:
            time.sleep(EVERY_SECONDS)
        raise
    finally:
        ended.set()
        thread.join()
