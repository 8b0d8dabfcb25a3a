"""The runs of a command that a launcher starts several times: each task runs its own rank of one run after another.

    rank 0      mode-0            stop-0 (if a rank has failed)            over-0    mode-1   ...   over
    rank r               end-0                                  closed-0                      end-1 ...

Rank 0 prepares each run's folder and writes its manifest. Every task starts the process of its own rank in it, and
closes its rank's records. When a rank fails, rank 0 lets the others end by themselves for a while and then stops them.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...errors import TaskGone
from ...runs.manifest import read_manifest
from ...runs.recorded_run import RecordedRun
from ...runs.run_layout import InvestigationFolder
from ..batch_plan import BatchPlan, check_plan
from ..execute_batch import BatchResult, FinishedRun, close_rank
from ..own_folders import began, keep_written, own_folders, throw_away
from ..preloaded import PreloadedProcesses
from ..prepared_runs import PreparedRun, prepare_rank, prepare_run
from ..run_ending import run_manifest
from ..running_process import ADDRESS, GRACE_SECONDS, Ended, ProcessEnd, Running, free_port, rank_variables, together
from ..supervise import POLL_SECONDS, EndingSignal, Reporter, signals_for
from .started_task import StartedTask, store_variables
from .task_meeting import LOOK_SECONDS, TaskMeeting


def execute_as_task(plan: BatchPlan, task: StartedTask, meeting: TaskMeeting, reporter: Reporter) -> BatchResult | None:
    """Run a plan's modes one after another, each with one rank per task. Return the result if this is rank 0's task.

    The plan's `nproc` is the number of tasks, and the tasks have met. Raises UsageError before anything is started, and
    TaskGone if rank 0's task has gone.
    """
    with PreloadedProcesses(lasting=len(plan.modes) > 1) as processes:
        if not task.rank:
            return _lead(plan, task, meeting, reporter, processes)
        for place, spec in enumerate(plan.modes):
            name, start = meeting.wait_for(0, f"mode-{place}", "over")
            if name == "over":
                break
            investigation = InvestigationFolder(plan.investigation.path.parent / start["folder"])
            own_plan = replace(plan, investigation=investigation)
            files = own_folders(own_plan, spec, began(investigation.path))
            folder = investigation.run(spec.name, plan.suffix).rank(task.rank)
            run = prepare_rank(own_plan, spec, folder, task.rank, files)
            rank_run = RankOfTask(run, task, meeting, place, _variables(plan, task, meeting, place, start))
            end = rank_run.execute(reporter, processes)
            meeting.say(**{f"end-{place}": asdict(end)})
            close_rank(run, end)
            meeting.say(**{f"closed-{place}": True})
            meeting.wait_for(0, f"over-{place}", "over")
    return None


def _lead(
    plan: BatchPlan, task: StartedTask, meeting: TaskMeeting, reporter: Reporter, processes: PreloadedProcesses
) -> BatchResult:
    """Execute the modes as rank 0, and tell the other tasks when each begins and ends."""
    check_plan(plan)
    since = began(plan.investigation.path)
    finished: list[FinishedRun] = []
    for place, spec in enumerate(plan.modes):
        run = prepare_run(plan, spec, since)
        address = socket.getfqdn(socket.gethostname()) if plan.machines > 1 else ADDRESS
        start = {"folder": plan.investigation.path.name, "address": address, "port": free_port()}
        meeting.say(**{f"mode-{place}": start})
        reporter.started(spec.name)
        rank_run = RankOfTask(run, task, meeting, place, _variables(plan, task, meeting, place, start))
        rank_run.execute(reporter, processes)
        end = rank_run.end_of_run()
        finished.append(_close(rank_run, end))
        reporter.ended(spec.name, end)
        meeting.say(**{f"over-{place}": True})
        if end.why == "interrupted":
            return BatchResult(finished, interrupted=True)
    return BatchResult(finished, interrupted=False)


def _variables(
    plan: BatchPlan, task: StartedTask, meeting: TaskMeeting, place: int, start: Mapping[str, Any]
) -> dict[str, str]:
    """Return the variables of torch.distributed that the launcher has not set for this task."""
    if task.has_rank_variables:
        return store_variables(os.environ, place, start["port"])
    variables = rank_variables(task.rank, task.world_size, start["port"], address=start["address"], hosts=meeting.hosts)
    # A batch script may state where the ranks meet.
    stated = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in os.environ}
    return variables | (stated if len(stated) == 2 else {})


def _close(rank_run: RankOfTask, end: ProcessEnd) -> FinishedRun:
    """Write the results of a run as rank 0, once the other tasks have written those of their ranks."""
    run, meeting = rank_run.run, rank_run.meeting
    first = close_rank(run, end.ranks[0])
    recorded = [RecordedRun(first.folder.path, first.manifest)]
    for rank, other in enumerate(run.others, 1):
        try:
            if end.ranks[rank].why == "lost":
                raise TaskGone(rank, meeting.hosts[rank])
            meeting.wait_for(rank, f"closed-{rank_run.place}")
            manifest = read_manifest(other.folder.path)
        except TaskGone:
            manifest = close_rank(other, end.ranks[rank]).manifest
        recorded.append(RecordedRun(other.folder.path, manifest))
    manifest = run_manifest(recorded, end)
    manifest = replace(manifest, notices=[*manifest.notices, *meeting.clock_sentences()])
    manifest.write(run.folder.manifest)
    if run.config.keep_files:
        keep_written(run.folder.path, run.config.files)
    else:
        throw_away(run.folder.path)
    return replace(first, manifest=manifest)


@dataclass(slots=True, eq=False)
class RankOfTask:
    """One run, as this task executes it: the process of its own rank and, as rank 0, the endings of all ranks.

    place: the number of the run's mode
    variables: further variables of the process
    """

    run: PreparedRun
    task: StartedTask
    meeting: TaskMeeting
    place: int
    variables: Mapping[str, str]
    began: float = field(default_factory=time.monotonic)
    ends: dict[int, ProcessEnd] = field(default_factory=dict)
    failed_at: float | None = None
    stopped_for: Ended = "exited"

    def execute(self, reporter: Reporter, processes: PreloadedProcesses) -> ProcessEnd:
        """Run the process of this rank to its end and return it. As rank 0, also wait for the ends of all others.

        Raises TaskGone if rank 0's task has gone; the process is ended before.
        """
        rank = self.task.rank
        launch = replace(self.run.launch, others=(), variables={**self.run.launch.variables, **self.variables})
        running = Running(launch, processes)
        awaited = self.task.world_size if not rank else 1
        looked = 0.0
        try:
            with signals_for(running.pass_on):
                while len(self.ends) < awaited:
                    if rank not in self.ends and (end := running.poll()) is not None:
                        self.add(rank, end)
                    if running.tail.advance():
                        reporter.progressed(launch.name, running.tail.progress)
                    if time.monotonic() - looked > LOOK_SECONDS:
                        why, looked = self.look(), time.monotonic()
                        if why != "exited" and rank not in self.ends:
                            self.add(rank, running.stop(signal.SIGTERM, why))
                    time.sleep(POLL_SECONDS)
        except (KeyboardInterrupt, EndingSignal) as ending:
            caught = ending.number if isinstance(ending, EndingSignal) else signal.SIGINT
            if rank not in self.ends:
                self.add(rank, running.stop(caught, "interrupted"))
            if not rank:
                self.stop_others("interrupted")
            while len(self.ends) < awaited:
                self.look()
                time.sleep(LOOK_SECONDS)
        except BaseException:
            running.stop(signal.SIGTERM, "interrupted")
            raise
        return self.ends[rank]

    def add(self, rank: int, end: ProcessEnd) -> None:
        self.ends[rank] = end
        if end.returncode and self.failed_at is None:
            self.failed_at = time.monotonic()

    def look(self) -> Ended:
        """Read the boards of the other tasks. Return why this rank has to end now, "exited" if it need not.

        Rank 0 decides that for all, some time after the first failure: until then, the other ranks usually fail
        themselves, because their peer is gone.
        """
        if self.task.rank:
            why: Ended = self.meeting.facts(0).get(f"stop-{self.place}", "exited")
            return why
        for rank in range(1, self.task.world_size):
            if rank in self.ends:
                continue
            try:
                facts = self.meeting.facts(rank).get(f"end-{self.place}")
            except TaskGone:
                silent = self.meeting.silent_for(rank)
                seconds = time.monotonic() - self.began - silent
                self.add(rank, ProcessEnd(-signal.SIGKILL, "lost", seconds, time.time() - silent))
                continue
            if facts is not None:
                at = facts["at"] + self.meeting.offsets[rank]
                self.add(rank, ProcessEnd(**{**facts, "at": at, "ranks": ()}))
        if any(end.why == "interrupted" for end in self.ends.values()):
            self.stop_others("interrupted")
        elif self.failed_at is not None and time.monotonic() - self.failed_at > GRACE_SECONDS:
            self.stop_others("with-another")
        return self.stopped_for

    def stop_others(self, why: Ended) -> None:
        """As rank 0, tell all tasks to end their processes."""
        if self.stopped_for == "exited":
            self.stopped_for = why
            self.meeting.say(**{f"stop-{self.place}": why})

    def end_of_run(self) -> ProcessEnd:
        """Return the ending of the whole run from those of its ranks."""
        launches = [self.run.launch, *self.run.launch.others]
        ends = [self.ends[rank] for rank in range(self.task.world_size)]
        reasons = {end.why for end in ends}
        requested: list[Ended] = ["interrupted", "timeout"]
        why: Ended = next((reason for reason in requested if reason in reasons), "exited")
        return together(launches, ends, why, time.monotonic() - self.began)
