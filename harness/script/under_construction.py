"""Modules that are called while the model that contains them is still being built."""

from __future__ import annotations

import sys

import torch

PARAMETRIZING = "torch.nn.utils.parametrize"


def under_construction() -> bool:
    """Return whether, on the current stack, a module is being built or a parametrization is being computed."""
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
