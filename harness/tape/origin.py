"""The place in the script from which something happened."""

from __future__ import annotations

import sys
from types import CodeType


def script_line(script: str) -> str | None:
    """The innermost frame of the script's own file on the current stack, as `file:line`."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == script:
            return f"{script}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


def names_in(code: CodeType) -> frozenset[str]:
    """Every global and attribute name that a code object mentions, its functions and classes included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return frozenset(names)
