"""Running processes one after the other or side by side, until each has ended in one way or another."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Protocol

from .guest_process import Launch, Processes
from .journal_tail import JournalProgress
from .running_process import ProcessEnd, Running, RunningRanks

POLL_SECONDS = 0.05


class Reporter(Protocol):
    """The listener to the progress of the processes."""

    def started(self, name: str) -> None: ...

    def progressed(self, name: str, progress: JournalProgress) -> None: ...

    def ended(self, name: str, end: ProcessEnd) -> None: ...


def supervise(
    launches: Sequence[Launch],
    reporter: Reporter,
    finished: Callable[[Launch, ProcessEnd], None],
    jobs: int = 1,
    processes: Processes | None = None,
    keep: Callable[[str, Running], None] | None = None,
    *,
    share_devices: bool = False,
) -> bool:
    """Run every launch, at most `jobs` at a time, as one of `processes`; `finished` is called as each ends. On an
    accelerator there is one at a time, unless they `share_devices`: its memory may not be enough for two.

    With `keep`, a launch that is held ends with its script, and its process, which goes on, is passed to `keep`.

    Returns False when Ctrl-C or a signal ended it early: running processes get the signal and are stopped, waiting
    launches are not started.
    """
    waiting, running = list(launches), list[Running | RunningRanks]()

    def pass_on(number: signal.Signals) -> None:
        for process in running:
            process.pass_on(number)

    def follow(process: Running | RunningRanks) -> None:
        if process.tail.advance():
            reporter.progressed(process.launch.name, process.tail.progress)

    def close(process: Running | RunningRanks, end: ProcessEnd) -> None:
        follow(process)  # what it wrote between the last look and its end
        finished(process.launch, end)
        reporter.ended(process.launch.name, end)

    try:
        with signals_for(pass_on):
            while waiting or running:
                while len(running) < jobs:
                    busy = {_device(active.launch) for active in running} - {None}
                    free = (queued for queued in waiting if share_devices or _device(queued) not in busy)
                    launch = next(free, None)
                    if launch is None:
                        break
                    waiting.remove(launch)
                    running.append((RunningRanks if launch.others else Running)(launch, processes))
                    reporter.started(launch.name)
                for process in list(running):
                    end = process.poll()
                    follow(process)
                    if end is None and keep is not None and (held_end := process.held()) is not None:
                        end = held_end
                        keep(process.launch.name, process.first)
                    if end is not None:
                        # Removed before it is closed: Ctrl-C within `finished` must not stop and close it once more.
                        running.remove(process)
                        close(process, end)
                time.sleep(POLL_SECONDS)
    except (KeyboardInterrupt, EndingSignal) as ending:
        # The scripts have sessions of their own, so the terminal's Ctrl-C has reached this process alone.
        caught = ending.number if isinstance(ending, EndingSignal) else signal.SIGINT
        for process in running:
            close(process, process.stop(caught, "interrupted"))
        return False
    except BaseException:
        for process in running:
            process.stop(signal.SIGTERM, "interrupted")
        raise
    return True


def _device(launch: Launch) -> str | None:
    """The accelerator that a launch runs on, with its number; None for the CPU."""
    device = launch.spec.accelerator
    return device if device is None or ":" in device else f"{device}:0"


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

    The process's own handlers of these signals are restored afterwards. A signal that it ignores, as nohup has it
    ignore SIGHUP, stays ignored, here and in the processes that it starts. Threads other than the main one get no
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets nobody but the main thread have handlers: a run from another one goes on without
        return

    def passed(number: int, _: FrameType | None) -> None:
        pass_on(signal.Signals(number))

    def ended(number: int, _: FrameType | None) -> None:
        raise EndingSignal(signal.Signals(number))

    handlers = dict.fromkeys(PASSED_ON, passed) | dict.fromkeys(ENDING, ended)
    heard = {signum: handler for signum, handler in handlers.items() if signal.getsignal(signum) != signal.SIG_IGN}
    before = {signum: signal.signal(signum, handler) for signum, handler in heard.items()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


FOLLOW_SECONDS = 0.02
"""The seconds between two looks at the output of a script: short enough that it feels like the script's own output."""


class PassThrough:
    """A reporter that prints nothing itself: the content of the files of a run is written out.

    `streams` are the files of standard output and standard error, each beside its destination.
    """

    def __init__(self, streams: dict[Path, BinaryIO]) -> None:
        self._streams = streams
        self._offsets = dict.fromkeys(streams, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="numdrift pass-through", daemon=True)

    def started(self, name: str) -> None:
        self._thread.start()

    def progressed(self, name: str, progress: JournalProgress) -> None:
        pass

    def ended(self, name: str, end: ProcessEnd) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(FOLLOW_SECONDS):
            self._copy()
        self._copy()  # once more: what came between the last copy and the end

    def _copy(self) -> None:
        for path, output in self._streams.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(self._offsets[path])
                data = file.read()
                self._offsets[path] += len(data)
                # A reader that has gone (`| head`) ends neither the script nor the recording.
                with suppress(BrokenPipeError):
                    output.write(data)
                    output.flush()
