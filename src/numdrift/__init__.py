"""numdrift: numerical divergence investigation for PyTorch.

Importing the package loads nothing heavy; public names are resolved at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .harness.adoption.script import after_step, device, log, mark_step, phase, print, step, steps
    from .harness.drift.comparison import RunComparison, compare_runs
    from .harness.interface.analyzing import analyze
    from .harness.interface.culprits import Culprit, Pair
    from .harness.interface.investigating import compare, investigate, localize
    from .harness.interface.investigation import Comparison, Investigation, load_investigation
    from .harness.interface.recording import Recording, record
    from .harness.interface.running import RunBatch, run
    from .harness.partition.config import PartitionConfig
    from .harness.partition.module import partition
    from .harness.runs.find import RecordedRun, load_run
    from .harness.runs.journal import Journal
    from .harness.runs.pickles import read_pickle
    from .harness.snapshots.callback import on_snapshot
    from .harness.support.analysis import SupportAnalysis

_HOMES = {
    "Comparison": "numdrift.harness.interface.investigation",
    "Culprit": "numdrift.harness.interface.culprits",
    "Investigation": "numdrift.harness.interface.investigation",
    "Journal": "numdrift.harness.runs.journal",
    "Pair": "numdrift.harness.interface.culprits",
    "PartitionConfig": "numdrift.harness.partition.config",
    "RecordedRun": "numdrift.harness.runs.find",
    "Recording": "numdrift.harness.interface.recording",
    "RunBatch": "numdrift.harness.interface.running",
    "RunComparison": "numdrift.harness.drift.comparison",
    "SupportAnalysis": "numdrift.harness.support.analysis",
    "after_step": "numdrift.harness.adoption.script",
    "analyze": "numdrift.harness.interface.analyzing",
    "compare": "numdrift.harness.interface.investigating",
    "compare_runs": "numdrift.harness.drift.comparison",
    "device": "numdrift.harness.adoption.script",
    "investigate": "numdrift.harness.interface.investigating",
    "load_investigation": "numdrift.harness.interface.investigation",
    "load_run": "numdrift.harness.runs.find",
    "localize": "numdrift.harness.interface.investigating",
    "log": "numdrift.harness.adoption.script",
    "mark_step": "numdrift.harness.adoption.script",
    "on_snapshot": "numdrift.harness.snapshots.callback",
    "partition": "numdrift.harness.partition.module",
    "phase": "numdrift.harness.adoption.script",
    "print": "numdrift.harness.adoption.script",
    "read_pickle": "numdrift.harness.runs.pickles",
    "record": "numdrift.harness.interface.recording",
    "run": "numdrift.harness.interface.running",
    "step": "numdrift.harness.adoption.script",
    "steps": "numdrift.harness.adoption.script",
}

__all__ = [
    "Comparison",
    "Culprit",
    "Investigation",
    "Journal",
    "Pair",
    "PartitionConfig",
    "RecordedRun",
    "Recording",
    "RunBatch",
    "RunComparison",
    "SupportAnalysis",
    "after_step",
    "analyze",
    "compare",
    "compare_runs",
    "device",
    "investigate",
    "load_investigation",
    "load_run",
    "localize",
    "log",
    "mark_step",
    "on_snapshot",
    "partition",
    "phase",
    "print",
    "read_pickle",
    "record",
    "run",
    "step",
    "steps",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'numdrift' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
