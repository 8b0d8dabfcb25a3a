"""A task: a command with a folder of its own, and the process that executes it wherever an engine starts it.

An engine passes only the folder, which all machines share. Everything else travels through the folder's files:

    task.json       the command, and what it needs
    task.lock       the current attempt; locked while the command runs
    task.log        what the command prints, of all attempts
    task.out        what it prints on standard output, of the last attempt, if that is kept apart
    task_end.json   how the command ended
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import ClassVar

from ..records.codec import Unreadable, json_text, put, read_fields

TASK, END, LOG, LOCK, OUTPUT = "task.json", "task_end.json", "task.log", "task.lock", "task.out"

FINISHED = (0, 1)
"""The exit codes with which numdrift's commands end if they have an answer."""

GRACE_SECONDS = 20.0
"""The seconds that an interrupted command has to end by itself. An investigation ends its own processes first."""

WAIT_SECONDS = 0.2
"""The seconds after which a wait for a command heeds an interruption."""

PASSED_ON = (
    *("PYTHON", "NUMDRIFT_", "OMP_", "MKL_", "KMP_", "ATEN_", "ONEDNN_", "TORCH", "TRITON_", "XDG_", "COLUMNS"),
    *("CUBLAS_", "NVIDIA_TF32_OVERRIDE", "PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
)
"""The beginnings of the names of the environment variables that a task's command gets from the process that plans it.
All others are those of the machine: a task's file must not contain the user's secrets."""


@dataclass(frozen=True, slots=True)
class TaskResources:
    """The part of a machine that a task needs.

    processors: the number of processors
    memory: bytes, 0 if unstated
    devices: the number of accelerators
    """

    processors: int = 1
    memory: int = 0
    devices: int = 0


@dataclass(frozen=True, slots=True)
class EngineTask:
    """A command that an engine executes.

    folder: the folder with the task's files
    cwd: the folder in which the command is executed
    environment: variables that replace those of the machine
    script: the script that the command executes, None if it is a module
    script_sha256: its version, "" if unknown
    output_apart: whether standard output goes to `task.out`; otherwise it goes to the log
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    name: str
    command: Sequence[str]
    folder: Path
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    resources: TaskResources = TaskResources()
    script: Path | None = None
    script_sha256: str = ""
    output_apart: bool = False

    def write(self) -> None:
        """Write `task.json` into the task's folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        put(self.folder / TASK, json_text(self, indent=1))


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The end of a task's command.

    exit_code: negative for a signal
    attempts: how often the command was started, by all engines
    host: the machine that executed it
    message: the last line of the log, if there is no answer
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    exit_code: int
    seconds: float = 0.0
    attempts: int = 1
    host: str = ""
    message: str = ""

    @property
    def is_finished(self) -> bool:
        """True if the command has an answer, so that it need not be executed again."""
        return self.exit_code in FINISHED

    @property
    def was_killed(self) -> bool:
        """True if a signal ended the command, so that another attempt may succeed."""
        return self.exit_code < 0


def passed_on() -> dict[str, str]:
    """Return the variables of this process that the commands of tasks get on every machine."""
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}


def read_task(folder: Path) -> EngineTask | None:
    """Return the task of a folder, None if there is no readable one."""
    try:
        return read_fields(EngineTask, json.loads((folder / TASK).read_text(encoding="utf-8")))
    except (OSError, ValueError, Unreadable):
        return None


def refused(why: str) -> TaskEnd:
    """Return the end of a task that this machine cannot execute."""
    return TaskEnd(2, host=socket.gethostname(), message=why)


def read_end(folder: Path) -> TaskEnd | None:
    """Return how a folder's task ended, None if it has not."""
    try:
        return read_fields(TaskEnd, json.loads((folder / END).read_text(encoding="utf-8")))
    except (OSError, ValueError, Unreadable):
        return None


def execute_task(folder: Path | str) -> TaskEnd:
    """Execute a folder's task in a process of its own, and write how it ended.

    If a process that an earlier driver or machine has left still executes the task, this waits for the end of that
    process. A task that is finished then is not executed again. Ctrl-C is passed on to the command, and raised when the
    command has ended.
    """
    folder = Path(folder)
    with (folder / LOCK).open("a+b", buffering=0) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end = read_end(folder)
        if end is not None and end.is_finished:
            return end
        task = read_task(folder)
        if task is None:
            return refused(f"{folder / TASK} cannot be read")
        (folder / END).unlink(missing_ok=True)
        attempts = _begin_attempt(lock)
        began = time.monotonic()
        code = _exit_code(task, lock)
        message = "" if code in FINISHED else last_line(folder / LOG)
        end = TaskEnd(code, round(time.monotonic() - began, 3), attempts, socket.gethostname(), message)
        put(folder / END, json_text(end, indent=1))
        return end


def attempt_of(folder: Path) -> tuple[int, str]:
    """Return the number of the last attempt of a folder's task and the machine that makes it; 0 and "" without one."""
    try:
        facts = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        return int(facts["attempt"]), str(facts["host"])
    except (OSError, ValueError, KeyError, TypeError):  # it may be written just now
        return 0, ""


def is_under_way(folder: Path) -> bool:
    """Check whether a process executes a folder's task."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _begin_attempt(lock: FileIO) -> int:
    """Write into the locked file who executes the task, and return the number of the attempt."""
    lock.seek(0)
    try:
        attempts = int(json.loads(lock.read())["attempt"]) + 1
    except (ValueError, KeyError, TypeError):
        attempts = 1
    lock.seek(0)
    lock.truncate()
    facts = {"attempt": attempts, "host": socket.gethostname(), "process": os.getpid(), "began": time.time()}
    lock.write(json_text(facts, indent=None).encode())
    return attempts


def _exit_code(task: EngineTask, lock: FileIO) -> int:
    """Execute the command. It holds the lock too, so the lock outlives this process if only this process is killed."""
    environment = os.environ | task.environment
    with (task.folder / LOG).open("ab") as log, ExitStack() as opened:
        output = opened.enter_context((task.folder / OUTPUT).open("wb")) if task.output_apart else log
        with _interrupted_later() as interruptions:
            try:
                process = subprocess.Popen(
                    task.command, cwd=task.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=log, start_new_session=True, pass_fds=(lock.fileno(),),
                )  # fmt: skip
            except OSError as error:
                log.write(f"numdrift: {task.command[0]} cannot be started in {task.cwd}: {error.strerror}\n".encode())
                return 127
        try:
            if interruptions:
                raise KeyboardInterrupt
            return _waited(process)
        except BaseException:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


@contextmanager
def _interrupted_later() -> Iterator[list[int]]:
    """Note a Ctrl-C that comes within the context in a list, raise nothing, and let processes that begin heed theirs.

    It would be raised within Popen, and the command, which may have begun already, would never hear of it. A worker of
    Ray blocks the signal, and its processes would inherit that.
    """
    interruptions: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # no other thread gets signals
    before = signal.signal(signal.SIGINT, lambda number, _: interruptions.append(number)) if is_main else None
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield interruptions
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if is_main:
            signal.signal(signal.SIGINT, before)


def _waited(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process once it has ended.

    The wait is short each time, because Ray interrupts no system call.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # an older kernel, or one that does not allow it
        while process.poll() is None:
            time.sleep(WAIT_SECONDS / 10)
        return process.wait()
    try:
        waited_for = select.poll()  # select() takes no descriptor from 1024 on, which a worker with many files has
        waited_for.register(descriptor, select.POLLIN)
        while not waited_for.poll(WAIT_SECONDS * 1000):
            pass
    finally:
        os.close(descriptor)
    return process.wait()


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, "" if there is none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
    try:
        sys.exit(0 if execute_task(sys.argv[1]) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
