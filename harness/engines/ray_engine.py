"""The engine of Ray: a task of a cluster for each task, or of a cluster that Ray starts on this machine."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from ..errors import NumdriftError, UsageError, nearest
from ..tools.bundle.archive import is_url
from ..tools.export.optional_library import optional_library
from .engine import Ended, EngineSettings, missing_paths
from .engine_task import GRACE_SECONDS, LOG, EngineTask, TaskEnd, execute_task, last_line
from .moved_task import execute_moved, fetch_results, send, url_of

OPTIONS = ("address", "num_cpus", "namespace")

AHEAD = 16
"""The number of tasks that are submitted beyond those that the cluster has room for."""

WAIT_SECONDS = 1.0


class TaskKilled(Exception):
    """A task whose command was killed. Ray executes the task again."""


@dataclass
class RayEngine:
    """Executes tasks on a Ray cluster.

    Options: `address` of a running cluster, as in `auto` (default: the variable RAY_ADDRESS, else a cluster on this
    machine that ends with this process); for a cluster on this machine, `num_cpus`. Raises UsageError if there is no
    cluster at the address.
    """

    settings: EngineSettings
    _tasks: dict[Any, EngineTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its maker
        self._ray = optional_library("ray", "ray")
        for key in self.settings.options:
            if key not in OPTIONS:
                raise UsageError(f"the engine ray has no option {key!r}; {nearest(key, OPTIONS)}")
        options: dict[str, Any] = dict(self.settings.options)
        if "num_cpus" in options:
            if not options["num_cpus"].isdecimal():
                raise UsageError(f"num_cpus={options['num_cpus']} is not a number of processors")
            options["num_cpus"] = int(options["num_cpus"])
        address = str(options.get("address") or os.environ.get("RAY_ADDRESS") or "")
        self._is_own = not address
        try:
            _reach(address)
            self._ray.init(
                **options, log_to_driver=False, logging_level=logging.ERROR,
                **({"include_dashboard": False} if self._is_own else {}),
            )  # fmt: skip
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise UsageError(
                f"there is no Ray cluster at {address or 'this machine'} ({reason}); start one with "
                "`ray start --head`, or leave out the address to use this machine"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reference in self._tasks:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference)
        if self._tasks:  # those that run pass Ctrl-C on to their commands
            self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=GRACE_SECONDS + 5)
        for task in self._tasks.values() if self.settings.shared else ():
            with suppress(NumdriftError):
                fetch_results(task, url_of(task, self.settings.shared))
        self._tasks.clear()
        self._ray.shutdown()

    def hosts_without(self, marker: str, python: str) -> Sequence[str]:
        """Look for the paths from each machine of the cluster."""
        scheduling = optional_library("ray.util.scheduling_strategies", "ray")
        looked = self._ray.remote(missing_paths)
        probes = [
            looked.options(
                num_cpus=0, scheduling_strategy=scheduling.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(marker, python)
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        try:
            return [host for hosts in self._ray.get(probes) for host in hosts]
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1:]
            raise UsageError(f"a machine of the cluster cannot execute numdrift: {''.join(reason)}") from None

    def execute(self, tasks: Iterable[EngineTask], ended: Ended) -> None:
        remote = self._ray.remote(execute_on_node)
        waiting = iter(tasks)
        upcoming = next(waiting, None)
        while upcoming is not None or self._tasks:
            while upcoming is not None and len(self._tasks) < self._limit(upcoming):
                self._require_room(upcoming)
                wanted = upcoming.resources
                place = send(upcoming, self.settings.shared) if self.settings.shared else str(upcoming.folder)
                reference = remote.options(
                    num_cpus=wanted.processors, num_gpus=wanted.devices, memory=wanted.memory or None,
                    max_retries=self.settings.retries, retry_exceptions=[TaskKilled], name=upcoming.name,
                ).remote(place)  # fmt: skip
                self._tasks[reference] = upcoming
                upcoming = next(waiting, None)
            done, _ = self._ray.wait(list(self._tasks), timeout=WAIT_SECONDS)
            for reference in done:
                end, task = self._end_of(reference), self._tasks.pop(reference)
                ended(task, self._brought(task, end) if self.settings.shared else end)

    def _end_of(self, reference: Any) -> TaskEnd:
        """Return how the task of a reference ended. A task that Ray gave up was killed, or its machine was lost."""
        try:
            end: TaskEnd = self._ray.get(reference)
            return end
        except self._ray.exceptions.RayError as error:
            task = self._tasks[reference]
            reason = last_line(task.folder / LOG) or str(error).strip().partition("\n")[0]
            return TaskEnd(-signal.SIGKILL, attempts=self.settings.retries + 1, message=reason)

    def _brought(self, task: EngineTask, end: TaskEnd) -> TaskEnd:
        """Fetch the results of a task from its URL. Return how it ended, or why they cannot be fetched."""
        try:
            fetch_results(task, url_of(task, self.settings.shared))
        except NumdriftError as error:
            return replace(end, exit_code=NumdriftError.exit_code, message=str(error))
        return end

    def _limit(self, task: EngineTask) -> int:
        """Return how many tasks are submitted at the same time."""
        if self.settings.jobs is not None:
            return self.settings.jobs
        processors = self._ray.cluster_resources().get("CPU", 1)
        return int(processors // max(1, task.resources.processors)) + AHEAD

    def _require_room(self, task: EngineTask) -> None:
        """Refuse a task for which no machine has room. A cluster at an address may get further machines."""
        wanted = task.resources
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        fits = any(
            wanted.processors <= node.get("CPU", 0)
            and wanted.devices <= node.get("GPU", 0)
            and wanted.memory <= node.get("memory", 0)
            for node in nodes
        )
        if not fits and self._is_own:
            raise UsageError(
                f"{task.name} needs {wanted.processors} processors, {wanted.devices} devices and "
                f"{wanted.memory >> 20:,} MiB of memory, and no machine of the cluster has them; change what the task "
                "needs, or name a larger cluster with --engine-option address=ADDRESS"
            )


def _reach(address: str) -> None:
    """Connect to the HOST:PORT of a cluster, as Ray itself tries for a minute. Raises OSError."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def execute_on_node(place: str) -> TaskEnd:
    """Execute the task of a folder or a URL in a worker of Ray.

    Raises TaskKilled if its command was killed, so that Ray tries again.
    """
    end = execute_moved(place) if is_url(place) else execute_task(place)
    if end.was_killed:
        raise TaskKilled(end.message)
    return end
