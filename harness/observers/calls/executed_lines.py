"""Follows the lines of the user's own files, as a debugger does, to find the line that draws a random number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from ...tape.origin import OwnFiles

MOST_LINES = 300_000
"""Maximum number of lines that are followed in a run.

Following a line takes 25 microseconds, since the states of the generators of torch, Python and NumPy are read.
"""


class ExecutedLines:
    """Calls `executed` with each line of this thread, as `file:line`, after the line has been executed.

    The lines of a called function are reported separately; the calling line continues when the function returns.
    Nothing is followed if a debugger or a coverage tool is already tracing.
    """

    def __init__(self, files: OwnFiles, executed: Callable[[str], None], guard: AbstractContextManager[None]) -> None:
        self._files = files
        self._executed = executed
        self._guard = guard
        self._left = MOST_LINES
        self._last = ""
        self.active = False

    @property
    def exhausted(self) -> bool:
        return self._left <= 0

    def start(self) -> None:
        if self.active or self.exhausted or sys.gettrace() is not None:
            return
        self.active = True
        self._last = ""
        for frame in self._files.frames(sys._getframe(1)):  # the frames that are already being executed
            frame.f_trace = self._in_frame
            self._last = self._last or f"{frame.f_code.co_filename}:{frame.f_lineno}"
        sys.settrace(self._called)

    def stop(self) -> None:
        """Report the last line and stop following."""
        if self.active:
            self.active = False
            if sys.gettrace() == self._called:
                sys.settrace(None)
            self._report()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.active or frame.f_code.co_filename not in self._files:
            return None
        self._report()  # the calling line
        self._last = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return self._in_frame

    def _in_frame(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.active:
            return None
        if event in ("line", "return"):
            self._report()
            if event == "line":
                self._last = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            else:
                self._last = self._files.line(frame.f_back)
        if self.exhausted:
            self.stop()
        return self._in_frame

    def _report(self) -> None:
        self._left -= 1
        if self._last:
            with self._guard:
                self._executed(self._last)
