"""The engine of Slurm: a job for each task, submitted by submitit. Its local and debug executors need no cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import UsageError, nearest
from ..tools.export.optional_library import optional_library
from .engine import Ended, EngineSettings, missing_paths
from .engine_task import GRACE_SECONDS, EngineTask, TaskEnd, TaskResources, execute_task

CLUSTERS = ("slurm", "local", "debug")

QUEUED_AT_ONCE = 256
"""The number of Slurm jobs in the queue at the same time, unless the user states another."""

POLL_SECONDS = {"slurm": 1.0, "local": 0.05, "debug": 0.0}

TIMEOUT_MINUTES = 24 * 60
"""The time limit of a job, unless the user states another. submitit's own is 5 minutes."""


@dataclass(frozen=True, slots=True)
class TaskCall:
    """The function of a job. If Slurm preempts or times out the job, submitit queues it again with the same folder."""

    folder: Path

    def __call__(self) -> TaskEnd:
        return execute_task(self.folder)

    def checkpoint(self) -> Any:
        return optional_library("submitit.helpers", "submitit").DelayedSubmission(self)


@dataclass
class SubmittedTask:
    """A task and its job."""

    task: EngineTask
    job: Any
    restarts: int = 0


@dataclass
class SubmititEngine:
    """Executes tasks as jobs. Options: `cluster` (slurm, local or debug), and the parameters of submitit's executor.

    Raises UsageError for options that submitit does not have.
    """

    settings: EngineSettings
    _submitted: list[SubmittedTask] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._submitit = optional_library("submitit", "submitit")
        if self.settings.shared:
            raise UsageError("--shared is for --engine ray: submitit itself needs a shared file system for its jobs")
        options = dict(self.settings.options)
        self.cluster = options.pop("cluster", "slurm")
        if self.cluster not in CLUSTERS:
            raise UsageError(f"submitit has no executor {self.cluster!r}; {nearest(self.cluster, CLUSTERS)}")
        self._failed_job = optional_library("submitit.core.utils", "submitit").FailedJobError
        self._options = {"timeout_min": TIMEOUT_MINUTES, "name": "numdrift"} | _typed(options)
        try:
            self._executor(TaskResources())  # refuses options before anything is submitted
        except RuntimeError as error:
            raise UsageError(
                f"there is no Slurm on this machine ({error}); log in to a machine of the cluster, or try submitit "
                "here with --engine-option cluster=local"
            ) from None
        except (NameError, AssertionError, ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"submitit does not take {', '.join(options)}: {reason}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for submitted in self._submitted:
            submitted.job.cancel(check=False)
        deadline = time.monotonic() + GRACE_SECONDS
        while self.cluster == "local" and time.monotonic() < deadline:
            if all(submitted.job.done() for submitted in self._submitted):
                break
            time.sleep(POLL_SECONDS["local"])
        self._submitted.clear()

    def hosts_without(self, marker: str, python: str) -> Sequence[str]:
        """Look for the paths from one job: the machines of a Slurm cluster have the same file systems."""
        if self.cluster == "debug":
            return ()
        job = self._submit(TaskResources(), [(missing_paths, marker, python)])[0]
        while not job.done():
            time.sleep(POLL_SECONDS[self.cluster])
        try:
            lacking: Sequence[str] = job.result()
        except Exception as failure:  # noqa: BLE001, of submitit or of the job
            reason = str(failure).strip().splitlines()[-1:]
            raise UsageError(f"a job of the cluster failed before any task: {''.join(reason)}") from None
        return lacking

    def execute(self, tasks: Iterable[EngineTask], ended: Ended) -> None:
        waiting = iter(tasks)
        limit = self._limit()
        while True:
            self._submit_tasks(list(islice(waiting, limit - len(self._submitted))))
            if not self._submitted:
                return
            for submitted in [submitted for submitted in self._submitted if submitted.job.done()]:
                self._submitted.remove(submitted)
                end = _end_of(submitted)
                if end.was_killed and submitted.restarts < self.settings.retries:
                    self._submit_tasks([submitted.task], submitted.restarts + 1)
                else:
                    ended(submitted.task, end)
            time.sleep(POLL_SECONDS[self.cluster])

    def _limit(self) -> int:
        """Return how many jobs are submitted at the same time."""
        if self.cluster == "debug":  # a job is executed within `done`, before the next can be submitted
            return 1
        if self.settings.jobs is not None:
            return self.settings.jobs
        return QUEUED_AT_ONCE if self.cluster == "slurm" else max(1, len(os.sched_getaffinity(0)) // 2)

    def _submit_tasks(self, tasks: Sequence[EngineTask], restarts: int = 0) -> None:
        for resources, group in groupby(tasks, lambda task: task.resources):
            of_group = list(group)
            if resources.devices and self.cluster == "local":
                raise UsageError(
                    f"{of_group[0].name} needs devices, and submitit's local executor gives the same devices to all "
                    "tasks; use --engine local on one machine"
                )
            jobs = self._submit(resources, [(TaskCall(task.folder),) for task in of_group])
            for task, job in zip(of_group, jobs, strict=True):
                self._submitted.append(SubmittedTask(task, job, restarts))

    def _submit(self, resources: TaskResources, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Submit calls, each a function with its arguments, as one array of jobs that need these resources.

        Raises UsageError if the cluster refuses them.
        """
        executor = self._executor(resources)
        try:
            with executor.batch():
                return [executor.submit(function, *arguments) for function, *arguments in calls]
        except self._failed_job as error:
            reason = "".join(str(error).strip().splitlines()[-1:])
            raise UsageError(f"the cluster refuses jobs: {reason}; see --engine-option") from None

    def _executor(self, resources: TaskResources) -> Any:
        """Return an executor whose jobs need these resources. What is not needed is not mentioned to the cluster."""
        executor = self._submitit.AutoExecutor(folder=self.settings.folder / "submitit", cluster=self.cluster)
        devices = {"gpus_per_node": resources.devices} if resources.devices else {}
        memory = {"mem_gb": resources.memory / 2**30} if resources.memory else {}
        executor.update_parameters(cpus_per_task=resources.processors, **devices, **memory, **self._options)
        return executor


def _end_of(submitted: SubmittedTask) -> TaskEnd:
    """Return how the task of a finished job ended. A job without a result was killed, or its machine was lost."""
    try:
        end: TaskEnd = submitted.job.result()
        return end
    except Exception as error:  # noqa: BLE001, of submitit or of the job
        # submitit's first two lines are one sentence: which job, and that it `has not produced any output`
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        return TaskEnd(-signal.SIGKILL, attempts=submitted.restarts + 1, message=" ".join(lines[:2]))


def _typed(options: Mapping[str, str]) -> dict[str, Any]:
    """Return options with whole numbers as numbers, as submitit wants them."""
    return {key: int(value) if value.isdecimal() else value for key, value in options.items()}
