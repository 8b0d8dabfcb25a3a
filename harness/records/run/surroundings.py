"""The surroundings of a process that may change its numbers.

They are recorded in the process of a script, and restored when the script is repeated. This module uses only the
standard library, since the process of a script uses it.
"""

from __future__ import annotations

import os

HASH_SEED = "PYTHONHASHSEED"
"""The environment variable with the seed of Python's hashes of text, on which the order of a set of strings depends."""

NUMBERS = ("OMP_", "MKL_", "ATEN_", "TORCH", "LTC_", "XLA_", "PJRT_", "CUBLAS_", "DNNL_", "ONEDNN_", HASH_SEED)
"""The prefixes of environment variables that may change numbers."""


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
