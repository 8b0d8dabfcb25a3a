"""What an investigation of the samples found, and the file in which it says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CULPRIT: Mapping[str, Any] = {
    "phase": "backward", "module": "net.1", "op": "aten.tanh_backward", "step": 0, "source": "train.py:19",
    "kind": "kernel", "kernel": {"a": "aten", "b": "decomposed"}, "significance": "rounding",
    "error_ulp": {"a": 0.94, "b": 724.2}, "rho": {"a": 0.4, "b": 1.1}, "share_of_drift": 0.97,
}  # fmt: skip


def investigation(*culprits: Mapping[str, Any], a: str = "lazy", b: str = "compile") -> dict[str, Any]:
    return {"schema": 1, "reference": a, "pairs": [{"a": a, "b": b, "culprits": list(culprits)}]}


def write_investigation(run: Path, found: object) -> None:
    """Put it beside a run: as JSON, or a text as it is."""
    text = found if isinstance(found, str) else json.dumps(found)
    (run.parent / "investigation.json").write_text(text)
