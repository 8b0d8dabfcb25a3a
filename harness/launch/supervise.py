"""Runs processes one after another or side by side until each has ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Protocol

from .guest_process import Launch, Processes
from .journal_tail import JournalProgress
from .running_process import ProcessEnd, Running, RunningRanks

POLL_SECONDS = 0.05


class Reporter(Protocol):
    """A listener to the progress of the processes."""

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
    """Run every launch as a process of `processes`, at most `jobs` at a time. `finished` is called as each one ends.

    Only one process runs on an accelerator at a time, unless `share_devices` is true: the accelerator's memory may not
    be enough for two.

    With `keep`, a held launch counts as ended when its script ends. Its process stays alive and is passed to `keep`.

    Return False if Ctrl-C or a signal ended the supervision early. Running processes then receive the signal and are
    stopped; waiting launches are not started.
    """
    supervision = _Supervision(list(launches), reporter, finished, jobs, processes, keep, share_devices)
    try:
        with signals_for(supervision.pass_on):
            while supervision.waiting or supervision.running:
                supervision.start_processes()
                supervision.look()
                time.sleep(POLL_SECONDS)
    except (KeyboardInterrupt, EndingSignal) as ending:
        # The scripts run in their own sessions, so the terminal's Ctrl-C has reached only this process.
        caught = ending.number if isinstance(ending, EndingSignal) else signal.SIGINT
        for process in supervision.running:
            supervision.close(process, process.stop(caught, "interrupted"))
        return False
    except BaseException:
        for process in supervision.running:
            process.stop(signal.SIGTERM, "interrupted")
        raise
    return True


@dataclass(slots=True, eq=False)
class _Supervision:
    """The launches that wait and the processes that run; see `supervise` for the other fields."""

    waiting: list[Launch]
    reporter: Reporter
    finished: Callable[[Launch, ProcessEnd], None]
    jobs: int
    processes: Processes | None
    keep: Callable[[str, Running], None] | None
    share_devices: bool
    running: list[Running | RunningRanks] = field(default_factory=list)

    def start_processes(self) -> None:
        """Start the launches that may run beside the running processes."""
        while len(self.running) < self.jobs and (launch := self._startable()) is not None:
            self.waiting.remove(launch)
            self.running.append((RunningRanks if launch.others else Running)(launch, self.processes))
            self.reporter.started(launch.name)

    def look(self) -> None:
        """Report the progress of the running processes, and close those that have ended."""
        for process in list(self.running):
            end = process.poll()
            self._follow(process)
            if end is None and self.keep is not None and (end := process.held()) is not None:
                self.keep(process.launch.name, process.first)
            if end is not None:
                # Removed before it is closed: Ctrl-C within `finished` must not stop and close it again.
                self.running.remove(process)
                self.close(process, end)

    def close(self, process: Running | RunningRanks, end: ProcessEnd) -> None:
        self._follow(process)  # lines written between the last look and the end
        self.finished(process.launch, end)
        self.reporter.ended(process.launch.name, end)

    def pass_on(self, number: signal.Signals) -> None:
        for process in self.running:
            process.pass_on(number)

    def _startable(self) -> Launch | None:
        busy = {_device(process.launch) for process in self.running} - {None}
        return next((launch for launch in self.waiting if self.share_devices or _device(launch) not in busy), None)

    def _follow(self, process: Running | RunningRanks) -> None:
        if process.tail.advance():
            self.reporter.progressed(process.launch.name, process.tail.progress)


def _device(launch: Launch) -> str | None:
    """Return the accelerator that a launch runs on, with its number; None for the CPU."""
    device = launch.spec.accelerator
    return device if device is None or ":" in device else f"{device}:0"


PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are passed on to scripts, which may handle them. They do not end this process."""

ENDING = (signal.SIGTERM, signal.SIGHUP)


class EndingSignal(BaseException):
    """A request to end the command by signal `number`, which the command's scripts receive first."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


@contextmanager
def signals_for(pass_on: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `pass_on` for each signal of PASSED_ON, and raise EndingSignal for ENDING, while the context is open.

    The process's own handlers of these signals are restored afterwards. A signal that the process ignores, such as
    SIGHUP under nohup, stays ignored in it and in the processes that it starts. Only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python allows handlers only in the main thread: a run from a different thread has none
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
"""Seconds between two looks at a script's output: short enough to feel like direct output."""


class PassThrough:
    """A reporter that prints nothing itself, but copies the contents of a run's files.

    `streams` maps the files of standard output and standard error to their destinations.
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
        self._copy()  # output between the last copy and the end

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
