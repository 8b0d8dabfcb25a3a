"""Signals that reach the command line and are meant for the scripts that it runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

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
