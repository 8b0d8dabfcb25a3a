"""The line of the script that a piece of work comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType


def line_in(script: str, frame: FrameType | None = None) -> str:
    """The innermost line of the script on the stack of `frame` (default: the caller's), as `train.py:24`; "" for none."""
    at = frame or sys._getframe(1)
    while at is not None:
        if at.f_code.co_filename == script:
            return f"{Path(script).name}:{at.f_lineno}"
        at = at.f_back  # type: ignore[assignment]
    return ""


def line_in_trace(script: str, trace: str | None) -> str:
    """The same of the text of a stack trace, whose frames read `File "/a/train.py", line 24, in f`."""
    before = f'File "{script}", line '
    for line in reversed((trace or "").splitlines()):
        _, found, rest = line.partition(before)
        if found:
            return f"{Path(script).name}:{rest.partition(',')[0]}"
    return ""
