"""Running processes one after the other or side by side, until each has ended in one way or another."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from .guest_process import Launch
from .running_process import Ended, ProcessEnd, Running, RunningRanks
from .tail import JournalProgress

__all__ = ["Ended", "ProcessEnd", "Reporter", "supervise"]

POLL_SECONDS = 0.05


class Reporter(Protocol):
    """Who is told how the processes get on."""

    def started(self, name: str) -> None: ...

    def progressed(self, name: str, progress: JournalProgress) -> None: ...

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


PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
"""A script may have handlers for them; they end nothing."""

ENDING = (signal.SIGTERM, signal.SIGHUP)


class EndingSignal(BaseException):
    """The command was asked to end by `number`, which its scripts get before it does."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


@contextmanager
def signals_for(pass_on: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `pass_on` for each of PASSED_ON, and raise EndingSignal for ENDING, while the context is open.

    What the process has done with these signals before is done again afterwards. Threads but the main one get none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def passed(number: int, _: FrameType | None) -> None:
        pass_on(signal.Signals(number))

    def ended(number: int, _: FrameType | None) -> None:
        raise EndingSignal(signal.Signals(number))

    handlers = dict.fromkeys(PASSED_ON, passed) | dict.fromkeys(ENDING, ended)
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
