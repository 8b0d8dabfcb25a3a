"""Kernels that tests define, as records that the lab takes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from numdrift.kernels.registry import Kernel

MODULE = "numdrift_test_kernels"


def kernel_of(op: str, function: Callable[..., Any], **more: Any) -> Kernel:
    """The record of a function of a test."""
    module = sys.modules.setdefault(MODULE, types.ModuleType(MODULE))
    setattr(module, function.__name__, function)
    return Kernel(op, function.__name__, "", "", f"{MODULE}:{function.__name__}", **more)
