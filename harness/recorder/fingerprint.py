"""The facts about a process that may change its numbers, as its run records them.

The facts are versions, the libraries that torch was built with, threads, settings and variables. Executed as a separate
process, this module writes the same facts for an interpreter in which nothing else runs.
"""

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

from ..records.run.surroundings import NUMBERS, cores
from ..torch_private.optimizer_steps import takes_foreach_on_the_cpu

VARIABLES = (*NUMBERS, "DEVICE")
"""Prefixes of the names of the environment variables that are recorded."""

ABSENT = "not built in"
OPTIONAL = ("MKL", "oneDNN", "OpenMP", "NNPACK")
"""Libraries that torch can be built without. If another library is not mentioned, nothing is known about it."""

LIBRARIES = {
    "BLAS": r"BLAS_INFO=([^,\s]+)",
    "LAPACK": r"LAPACK_INFO=([^,\s]+)",
    "MKL": r"Math Kernel Library Version ([^\s-]+)",
    "oneDNN": r"MKL-DNN v([^\s]+)",
    "OpenMP": r"OpenMP (\d+)",
    "NNPACK": r"NNPACK is (\w+)",
    "compiler": r"- ((?:GCC|clang|MSVC|icc)[^\n]*)",
}
"""The pattern of each library in `torch.__config__.show()`, which mentions only libraries that are built in."""


def numeric_variables() -> dict[str, str]:
    """Return the current values of the environment variables that may change numbers."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}


def fingerprint(variables: Mapping[str, str], *, numpy: bool) -> dict[str, object]:
    """Return the facts that may change a run's numbers, as plain JSON values. `numpy` adds NumPy's version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reading a precision makes torch 2.9 warn about setting one
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
    """Return the version of each library named in `torch.__config__.show()`.

    An optional library that is not built in has the version `ABSENT`.
    """
    matches = {name: re.search(pattern, shown) for name, pattern in LIBRARIES.items()}
    versions = {name: match.group(1).strip() for name, match in matches.items() if match is not None}
    return versions | {name: ABSENT for name in OPTIONAL if name not in versions}


def _settings() -> dict[str, object]:
    """Return the settings of torch that change kernels or the order of sums.

    Settings that this version of torch lacks are left out.
    """
    onednn, attention = torch.backends.mkldnn, torch.backends.cuda
    kinds = ("flash", "mem_efficient", "math")
    settings: dict[str, object] = {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "onednn_enabled": bool(getattr(onednn, "enabled", True)) and onednn.is_available(),
        "attention": " ".join(kind for kind in kinds if getattr(attention, f"{kind}_sdp_enabled")()),
        "foreach": takes_foreach_on_the_cpu(),
    }
    if hasattr(onednn, "fp32_precision"):
        settings["onednn_precision"] = str(onednn.fp32_precision)
    return {name: value for name, value in settings.items() if value is not None}


def _numpy() -> dict[str, str]:
    try:
        return {"numpy": version("numpy")}
    except PackageNotFoundError:
        return {}


def main(answer: Path) -> int:
    """Write the fingerprint of this interpreter."""
    answer.write_text(json.dumps(fingerprint(numeric_variables(), numpy=True)), encoding="utf-8")
    return 0
