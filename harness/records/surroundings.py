"""What of a process's surroundings may change its numbers. Standard library only: recorded in the process of a script,
restored by whoever repeats it."""

from __future__ import annotations

import os

NUMBERS = ("OMP_", "MKL_", "ATEN_", "TORCH", "LTC_", "XLA_", "PJRT_", "CUBLAS_", "DNNL_", "ONEDNN_")
"""How the names of environment variables begin that may change numbers."""


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
