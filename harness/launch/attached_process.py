"""A process in place of this command: it has the command's streams, its terminal and its signals.

This module imports little, because signals have to be held before a library starts threads.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
"""Signals that are passed on to the process."""

BY_THE_TERMINAL = 0x80
"""SI_KERNEL of sigaction(2): the terminal has sent the signal, also to the process, which is of the same group."""


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold the signals of PASSED_ON within the context, for `run_attached`. Call this before other threads exist.

    A signal that arrives in the context but not in `run_attached` takes effect at the context's end.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the end of a process could not be read
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *PASSED_ON))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_attached(command: list[str], environment: Mapping[str, str]) -> tuple[int, float]:
    """Run a program with this process's streams, in its group, until it ends. Pass on the signals that arrive.

    Only within `signals_held`. Return its exit code, which is negative for a signal, and the seconds that it took.
    """
    began = time.monotonic()
    pid = os.posix_spawn(command[0], command, environment, setsigmask=(), setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    while True:
        arrived = signal.sigwaitinfo((signal.SIGCHLD, *PASSED_ON))
        if arrived.si_signo != signal.SIGCHLD:
            if arrived.si_code != BY_THE_TERMINAL:
                with suppress(ProcessLookupError):
                    os.kill(pid, arrived.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), time.monotonic() - began


def replace_this_process(command: list[str], environment: Mapping[str, str]) -> None:
    """Become the program. Only within `signals_held`, whose signals the program receives. Raises OSError."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these, and the program would, too
    os.execve(command[0], command, environment)
