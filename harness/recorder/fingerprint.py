"""What may change a process's numbers, as its run records it: versions, the libraries that torch was built with,
threads, settings, variables. Started as a process of its own it writes the same of an interpreter in which nothing
else is run."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ..records.surroundings import NUMBERS, cores
from ..torch_private.optimizer_steps import takes_foreach_on_the_cpu

VARIABLES = (*NUMBERS, "DEVICE")
"""How the names of the environment variables begin that are recorded."""

ABSENT = "not built in"
OPTIONAL = ("MKL", "oneDNN", "OpenMP", "NNPACK")
"""Libraries that torch can be built without; of the others nothing is known where they are not named."""

LIBRARIES = {
    "BLAS": r"BLAS_INFO=([^,\s]+)",
    "LAPACK": r"LAPACK_INFO=([^,\s]+)",
    "MKL": r"Math Kernel Library Version ([^\s-]+)",
    "oneDNN": r"MKL-DNN v([^\s]+)",
    "OpenMP": r"OpenMP (\d+)",
    "NNPACK": r"NNPACK is (\w+)",
    "compiler": r"- ((?:GCC|clang|MSVC|icc)[^\n]*)",
}
"""Where `torch.__config__.show()` names each. It says nothing of a library that is not built in."""


def numeric_variables() -> dict[str, str]:
    """The environment variables that may change numbers, as they are now."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}


def fingerprint(variables: Mapping[str, str], *, numpy: bool) -> dict[str, object]:
    """What may change a run's numbers, as plain JSON values; the version of `numpy` for a script that mentions it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 warns whoever asks for a precision, and means who sets it
        settings = _settings()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch.__version__,
        **libraries(torch.__config__.show()),
        **(_numpy() if numpy else {}),
        "platform": platform.platform(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cores": cores(),
        **settings,
        "environment": dict(variables),
    }


def libraries(shown: str) -> dict[str, str]:
    """The libraries in the words of `torch.__config__.show()`: versions, or that one is not built in."""
    found = {name: re.search(pattern, shown) for name, pattern in LIBRARIES.items()}
    told = {name: one.group(1).strip() for name, one in found.items() if one is not None}
    return told | {name: ABSENT for name in OPTIONAL if name not in told}


def _settings() -> dict[str, object]:
    """Settings of torch that change kernels or the order of sums; what this version does not have is left out."""
    onednn, attention = torch.backends.mkldnn, torch.backends.cuda
    kinds = ("flash", "mem_efficient", "math")
    told: dict[str, object] = {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "onednn_enabled": bool(getattr(onednn, "enabled", True)) and onednn.is_available(),
        "attention": " ".join(kind for kind in kinds if getattr(attention, f"{kind}_sdp_enabled")()),
        "foreach": takes_foreach_on_the_cpu(),
    }
    if hasattr(onednn, "fp32_precision"):
        told["onednn_precision"] = str(onednn.fp32_precision)
    return {name: value for name, value in told.items() if value is not None}


def _numpy() -> dict[str, str]:
    try:
        return {"numpy": version("numpy")}
    except PackageNotFoundError:
        return {}


def main(answer: Path) -> int:
    """Write the fingerprint of this interpreter."""
    answer.write_text(json.dumps(fingerprint(numeric_variables(), numpy=True)), encoding="utf-8")
    return 0
