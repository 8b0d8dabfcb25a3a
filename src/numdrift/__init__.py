"""numdrift: numerical divergence investigation for PyTorch.

Importing the package loads nothing heavy; public names are resolved at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .harness.api.api_recording import Recording, record
    from .harness.api.api_running import RunBatch, run
    from .harness.api.backend_support import analyze
    from .harness.api.batching import batch, compare_batches
    from .harness.api.bisecting import bisect
    from .harness.api.checking import check
    from .harness.api.comparing import compare
    from .harness.api.gating import assert_same_training, check_baseline, save_baseline
    from .harness.api.investigating import investigate, localize
    from .harness.api.investigation_results import Comparison, Culprit, Investigation, Pair, load_investigation
    from .harness.api.neutral_changes import neutral
    from .harness.api.op_checking import check_ops
    from .harness.api.referencing import reference
    from .harness.api.resuming import resume
    from .harness.drift.run_comparison import RunComparison, compare_runs
    from .harness.observers.partition.partitioned_module import partition
    from .harness.records.tools.partition_record import PartitionConfig
    from .harness.runs.journal import Journal
    from .harness.runs.pickles import read_pickle
    from .harness.runs.recorded_run import RecordedRun, load_run
    from .harness.script.script_api import (
        after_step,
        device,
        log,
        mark_step,
        on_snapshot,
        phase,
        print,
        step,
        steps,
    )
    from .harness.tools.support.support_analysis import SupportAnalysis

_HOMES = {
    "Comparison": "numdrift.harness.api.investigation_results",
    "Culprit": "numdrift.harness.api.investigation_results",
    "Investigation": "numdrift.harness.api.investigation_results",
    "Journal": "numdrift.harness.runs.journal",
    "Pair": "numdrift.harness.api.investigation_results",
    "PartitionConfig": "numdrift.harness.records.tools.partition_record",
    "RecordedRun": "numdrift.harness.runs.recorded_run",
    "Recording": "numdrift.harness.api.api_recording",
    "RunBatch": "numdrift.harness.api.api_running",
    "RunComparison": "numdrift.harness.drift.run_comparison",
    "SupportAnalysis": "numdrift.harness.tools.support.support_analysis",
    "after_step": "numdrift.harness.script.script_api",
    "analyze": "numdrift.harness.api.backend_support",
    "assert_same_training": "numdrift.harness.api.gating",
    "batch": "numdrift.harness.api.batching",
    "bisect": "numdrift.harness.api.bisecting",
    "check": "numdrift.harness.api.checking",
    "check_baseline": "numdrift.harness.api.gating",
    "check_ops": "numdrift.harness.api.op_checking",
    "compare": "numdrift.harness.api.comparing",
    "compare_batches": "numdrift.harness.api.batching",
    "compare_runs": "numdrift.harness.drift.run_comparison",
    "device": "numdrift.harness.script.script_api",
    "investigate": "numdrift.harness.api.investigating",
    "load_investigation": "numdrift.harness.api.investigation_results",
    "load_run": "numdrift.harness.runs.recorded_run",
    "localize": "numdrift.harness.api.investigating",
    "log": "numdrift.harness.script.script_api",
    "mark_step": "numdrift.harness.script.script_api",
    "neutral": "numdrift.harness.api.neutral_changes",
    "on_snapshot": "numdrift.harness.script.script_api",
    "partition": "numdrift.harness.observers.partition.partitioned_module",
    "phase": "numdrift.harness.script.script_api",
    "print": "numdrift.harness.script.script_api",
    "read_pickle": "numdrift.harness.runs.pickles",
    "record": "numdrift.harness.api.api_recording",
    "reference": "numdrift.harness.api.referencing",
    "resume": "numdrift.harness.api.resuming",
    "run": "numdrift.harness.api.api_running",
    "save_baseline": "numdrift.harness.api.gating",
    "step": "numdrift.harness.script.script_api",
    "steps": "numdrift.harness.script.script_api",
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
    "assert_same_training",
    "batch",
    "bisect",
    "check",
    "check_baseline",
    "check_ops",
    "compare",
    "compare_batches",
    "compare_runs",
    "device",
    "investigate",
    "load_investigation",
    "load_run",
    "localize",
    "log",
    "mark_step",
    "neutral",
    "on_snapshot",
    "partition",
    "phase",
    "print",
    "read_pickle",
    "record",
    "reference",
    "resume",
    "run",
    "save_baseline",
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
