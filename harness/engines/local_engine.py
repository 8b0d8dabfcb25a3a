"""The engine of this machine: a process for each task, as many at a time as the machine has room for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import UsageError, nearest
from .engine import Ended, EngineSettings
from .engine_task import GRACE_SECONDS, LOG, EngineTask, TaskEnd, last_line, passed_on, read_end

POLL_SECONDS = 0.02

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable with which a task is restricted to its devices. ROCm reads it, too."""


@dataclass
class Room:
    """Free resources of this machine: the number of processors, bytes of memory, and the names of devices."""

    processors: int
    memory: int
    devices: list[str]

    def has(self, task: EngineTask, *, processors: bool = True) -> bool:
        """Check whether there is room for a task; without `processors`, they do not matter."""
        wanted = task.resources
        return (
            (wanted.processors <= self.processors or not processors)
            and wanted.memory <= self.memory
            and wanted.devices <= len(self.devices)
        )

    def take(self, task: EngineTask) -> list[str]:
        """Take what a task needs, and return the devices."""
        self.processors -= task.resources.processors
        self.memory -= task.resources.memory
        taking, self.devices = self.devices[: task.resources.devices], self.devices[task.resources.devices :]
        return taking

    def give_back(self, task: EngineTask, devices: Sequence[str]) -> None:
        self.processors += task.resources.processors
        self.memory += task.resources.memory
        self.devices = [*self.devices, *devices]


@dataclass
class RunningTask:
    """A task whose process runs, and its devices."""

    task: EngineTask
    process: subprocess.Popen[bytes]
    devices: list[str]
    restarts: int = 0


@dataclass
class LocalEngine:
    """Executes tasks in processes of this machine. It has one option: `devices`, as in `0,1,2,3`.

    If the number of jobs is stated, the processors that a task needs do not matter.
    """

    settings: EngineSettings
    _running: list[RunningTask] = field(default_factory=list)

    def __post_init__(self) -> None:
        if unknown := next((key for key in self.settings.options if key != "devices"), None):
            raise UsageError(f"the engine local has no option {unknown!r}; {nearest(unknown, ['devices'])}")
        if self.settings.shared:
            raise UsageError("--shared is for --engine ray: the tasks of the engine local are on this machine")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._running:
            running.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE_SECONDS + 5
        for running in self._running:
            try:
                running.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running.process.kill()
        self._running.clear()

    def hosts_without(self, marker: str, python: str) -> Sequence[str]:
        return ()  # this machine has written the marker

    def execute(self, tasks: Iterable[EngineTask], ended: Ended) -> None:
        room = Room(len(os.sched_getaffinity(0)), _memory(), _devices(self.settings.options.get("devices")))
        whole = Room(room.processors, room.memory, list(room.devices))
        waiting = iter(tasks)
        upcoming = next(waiting, None)
        while upcoming is not None or self._running:
            while upcoming is not None and self._may_start(upcoming, room, whole):
                devices = room.take(upcoming)
                self._running.append(RunningTask(upcoming, _started(upcoming, devices), devices))
                upcoming = next(waiting, None)
            time.sleep(POLL_SECONDS)
            for running in [running for running in self._running if running.process.poll() is not None]:
                wrote_end = running.process.returncode == 0
                end = (read_end(running.task.folder) if wrote_end else None) or _lost(running)
                if end.was_killed and running.restarts < self.settings.retries:
                    running.process = _started(running.task, running.devices)
                    running.restarts += 1
                    continue
                self._running.remove(running)
                room.give_back(running.task, running.devices)
                ended(running.task, end)

    def _may_start(self, task: EngineTask, room: Room, whole: Room) -> bool:
        if self.settings.jobs is not None and len(self._running) >= self.settings.jobs:
            return False
        if room.has(task, processors=self.settings.jobs is None):
            return True
        wanted = task.resources
        if wanted.devices > len(whole.devices) or wanted.memory > whole.memory:
            raise UsageError(
                f"{task.name} needs {wanted.devices} devices and {wanted.memory >> 20:,} MiB of memory, and this "
                f"machine has {len(whole.devices)} devices and {whole.memory >> 20:,} MiB; change what the task needs, "
                "or name the devices, as in --engine-option devices=0,1"
            )
        # More processors than the machine has are no obstacle: the task's processes then share those that there are.
        return not self._running and wanted.processors > whole.processors


def _started(task: EngineTask, devices: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the process that executes a task. It outlives this process if this process is killed."""
    restricted = {VISIBLE: ",".join(devices)} if devices else {}
    return subprocess.Popen(
        [sys.executable, "-m", "numdrift.harness.engines.engine_task", str(task.folder)],
        env=os.environ | passed_on() | restricted,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _lost(running: RunningTask) -> TaskEnd:
    """Return the end of a task whose process ended without having written how."""
    code = running.process.returncode
    log = running.task.folder / LOG
    return TaskEnd(code if code < 0 else -signal.SIGKILL, attempts=running.restarts + 1, message=last_line(log))


def _memory() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _devices(stated: str | None) -> list[str]:
    """Return the names of the devices that tasks may use: the stated or visible ones, else those in /dev."""
    visible = stated if stated is not None else os.environ.get(VISIBLE)
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    numbers = sorted(int(path.name.removeprefix("nvidia")) for path in Path("/dev").glob("nvidia[0-9]*"))
    return [str(number) for number in numbers]
