"""numdrift: numerical divergence investigation for PyTorch.

Importing the package loads nothing heavy; public names are resolved at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Journal": "numdrift.harness.runs.journal",
    "RecordedRun": "numdrift.harness.runs.find",
    "RunComparison": "numdrift.harness.drift.comparison",
    "compare_runs": "numdrift.harness.drift.comparison",
    "load_run": "numdrift.harness.runs.find",
    "read_pickle": "numdrift.harness.runs.pickles",
}

__all__ = ["Journal", "RecordedRun", "RunComparison", "compare_runs", "load_run", "read_pickle"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'numdrift' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
