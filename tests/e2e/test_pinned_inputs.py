"""What numdrift sets for a script that depends on it: two modes are equal bit for bit, and the answer names the inputs
without which they would not be."""

from __future__ import annotations

from pathlib import Path

import pytest

import numdrift
from numdrift.harness.records.results.findings import GENERATORS, HASH

SCRIPT = Path(__file__).parent / "scripts" / "set_order.py"


@pytest.mark.slow
@pytest.mark.usefixtures("trainings_are_forked")
def test_a_script_that_depends_on_a_set_and_on_an_unseeded_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    found = numdrift.investigate(SCRIPT, modes=["cpu", "same=cpu"], out=tmp_path, scripts=False)
    [pair] = found.content["pairs"]
    by_hash, by_generators = pair["pinned"]
    line = next(number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1) if "set(words)" in text)
    assert (pair["verdict"], found.exit_code) == ("identical", 0)
    assert (by_hash["input"], by_hash["what"], by_hash["step"]) == (HASH, "batch", 0)
    assert f"{SCRIPT}:{line}" in by_hash["lines"]
    assert (by_generators["input"], by_generators["generators"]) == (GENERATORS, ["numpy"])
    evidence = tmp_path / SCRIPT.stem / "evidence"
    assert {by_hash["run"], by_generators["run"]} <= {path.name for path in evidence.iterdir()}
