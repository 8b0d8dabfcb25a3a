"""The surroundings of a process that may change its numbers.

They are recorded in the process of a script, and restored when the script is repeated. This module uses only the
standard library, since the process of a script uses it.
"""

from __future__ import annotations

import os

NUMBERS = ("OMP_", "MKL_", "ATEN_", "TORCH", "LTC_", "XLA_", "PJRT_", "CUBLAS_", "DNNL_", "ONEDNN_")
"""The prefixes of environment variables that may change numbers."""


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
