"""The fingerprint of the process that a run happened in: what may change its numbers."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import torch


def fingerprint() -> dict[str, Any]:
    """Versions, threads, CPU capability and flags, as plain JSON values."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("OMP_", "MKL_", "ATEN_", "TORCH", "LTC_", "XLA_", "PJRT_", "DEVICE", "CUBLAS_"))
        },
    }
