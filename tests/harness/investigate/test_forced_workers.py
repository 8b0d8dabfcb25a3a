"""The workers of resynced steps that an investigation keeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from numdrift.harness.investigate.experiments.forced_workers import end_without_tapes
from numdrift.harness.investigate.experiments.laboratory import Laboratory

from .written_evidence import compared_study


@pytest.mark.parametrize(
    ("kept", "ends"),
    [("", True), ("tape-000000.safetensors", False), ("noise-000000.json", False)],
)
def test_a_worker_without_a_tape_ends(tmp_path: Path, kept: str, ends: bool) -> None:
    # given a mode whose resynced steps have a tape, the reason why there is none, or neither
    _, (reference, mode) = compared_study(tmp_path, {0: 40.0})
    forced = tmp_path / "evidence" / "compile-from-cpu"
    if kept:
        (forced / "tapes").mkdir()
        (forced / "tapes" / kept).write_bytes(b"")
    ended: list[Path] = []
    laboratory = SimpleNamespace(workers=SimpleNamespace(let_go=ended.append))
    end_without_tapes(cast(Laboratory, laboratory), reference, [mode])
    assert ended == ([forced] if ends else [])
