"""The place in the script from which something happened."""

from __future__ import annotations

import sys
from types import CodeType

import torch

PARAMETRIZING = "torch.nn.utils.parametrize"


def script_line(script: str) -> str | None:
    """The innermost frame of the script's own file on the current stack, as `file:line`."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == script:
            return f"{script}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


def under_construction() -> bool:
    """Whether a module is being built on the current stack, or one of its parametrizations is computed."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_argcount:
            if isinstance(frame.f_locals.get(code.co_varnames[0]), torch.nn.Module):
                return True
        elif frame.f_globals.get("__name__") == PARAMETRIZING:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def names_in(code: CodeType) -> frozenset[str]:
    """Every global and attribute name that a code object mentions, its functions and classes included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_in(constant)
    return frozenset(names)
