"""The variables of the tests' own scripts are known to the nursery."""

from __future__ import annotations

import re

from ..conftest import ROOT
from .nursery import READ_LATE

OF_LIBRARIES = {
    "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "OMP_NUM_THREADS", "PJRT_DEVICE", "PYTHONHASHSEED", "TORCH_LOGS",
    "XLA_FLAGS",
}  # fmt: skip
"""Variables that something reads when it is loaded: a training with another value is started."""


def test_no_training_is_started_anew_for_a_variable_of_its_script() -> None:
    """One that is not listed takes ten times as long, and nothing else would tell."""
    read = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        read |= set(re.findall(r"\benv\.([A-Z_]+)=", text))
        if path.parent.name in ("scripts", "cases", "models"):
            read |= set(re.findall(r"\benviron(?:\.get\(|\[)\"([A-Z_]+)\"", text))
    assert {"FAULT", "EPS", "PLANT"} <= read
    assert read - set(READ_LATE) <= OF_LIBRARIES
