"""How much memory the process has, and has had at most."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAXRSS = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of `ru_maxrss` (getrusage(2): kilobytes on Linux, bytes on macOS)."""


def memory_of(device: str) -> dict[str, int]:
    """Bytes by name: `resident` and `peak` of the process, and `device` and `device_peak` where the device's
    allocator counts them. Only what is known is there."""
    found = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS}
    with suppress(OSError, ValueError, IndexError):
        found["resident"] = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    kind = device.partition(":")[0]
    module: Any = getattr(torch, kind, None)
    if kind != "cpu" and hasattr(module, "max_memory_allocated"):
        with suppress(RuntimeError, AssertionError):
            found["device"] = int(module.memory_allocated())
            found["device_peak"] = int(module.max_memory_allocated())
    return found
