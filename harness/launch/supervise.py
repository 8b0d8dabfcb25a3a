"""Running processes one after the other or side by side, until each has ended in one way or another."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .guest_process import Launch
from .rank_processes import RunningRanks
from .running_process import Ended, ProcessEnd, Running
from .signals import EndingSignal, signals_for
from .tail import Progress

__all__ = ["Ended", "ProcessEnd", "Reporter", "supervise"]

POLL_SECONDS = 0.05


class Reporter(Protocol):
    """Who is told how the processes get on."""

    def started(self, name: str) -> None: ...

    def progressed(self, name: str, progress: Progress) -> None: ...

    def ended(self, name: str, end: ProcessEnd) -> None: ...


def supervise(
    launches: Sequence[Launch],
    reporter: Reporter,
    finished: Callable[[Launch, ProcessEnd], None],
    jobs: int = 1,
) -> bool:
    """Run every launch, at most `jobs` at a time; `finished` is called as each ends.

    Gives False when Ctrl-C or a signal ended it early: what runs gets it and is stopped, what waits is not started.
    """
    waiting, running = deque(launches), list[Running | RunningRanks]()

    def pass_on(number: signal.Signals) -> None:
        for one in running:
            one.pass_on(number)

    try:
        with signals_for(pass_on):
            _until_ended(waiting, running, reporter, finished, jobs)
    except (KeyboardInterrupt, EndingSignal) as asked:
        how = asked.number if isinstance(asked, EndingSignal) else signal.SIGINT
        for one in running:
            _close(one, one.stop(how, "interrupted"), reporter, finished)
        return False
    except BaseException:
        for one in running:
            one.stop(signal.SIGTERM, "interrupted")
        raise
    return True


def _until_ended(
    waiting: deque[Launch],
    running: list[Running | RunningRanks],
    reporter: Reporter,
    finished: Callable[[Launch, ProcessEnd], None],
    jobs: int,
) -> None:
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_started(waiting.popleft()))
            reporter.started(running[-1].launch.name)
        for one in list(running):
            end = one.poll()
            if one.tail.advance():
                reporter.progressed(one.launch.name, one.tail.progress)
            if end is not None:
                running.remove(one)
                _close(one, end, reporter, finished)
        time.sleep(POLL_SECONDS)


def _started(launch: Launch) -> Running | RunningRanks:
    return RunningRanks(launch) if launch.others else Running(launch)


def _close(
    one: Running | RunningRanks,
    end: ProcessEnd,
    reporter: Reporter,
    finished: Callable[[Launch, ProcessEnd], None],
) -> None:
    if one.tail.advance():
        reporter.progressed(one.launch.name, one.tail.progress)
    finished(one.launch, end)
    reporter.ended(one.launch.name, end)
