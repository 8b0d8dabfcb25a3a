"""Which step is looked into where data differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numdrift.harness.investigate.evidence.batches_followed import step_with_its_data
from numdrift.harness.investigate.evidence.pair_evidence import PairEvidence
from numdrift.harness.records.results.culprit import Culprit, Proof, SwappedIn, SwappedOut
from numdrift.harness.records.results.findings import PairFindings, StepFindings
from numdrift.harness.runs.journal import StepRecord
from numdrift.harness.runs.step_outcomes import tape_path


def looked_into(
    folder: Path, culprits: Sequence[Culprit], taped: Sequence[int] = (6,), optimizers: Sequence[int | None] = (None,)
) -> int | None:
    """Which step is, of 0, 4 and 6 beyond rounding and 2 within."""
    for step in taped:
        tape_path(folder, step).parent.mkdir(parents=True, exist_ok=True)
        tape_path(folder, step).touch()
    scores = {0: 900.0, 2: 3.0, 4: 80.0, 6: 90.0}
    steps = [StepFindings(step, score) for step, score in scores.items()]
    pair = PairFindings("cpu", "b", "beyond-rounding", [], threshold=16.0, culprits=culprits, steps=steps)
    records = [StepRecord(step, (0.5,), 1.0, optimizer=optimizers[step % len(optimizers)]) for step in range(7)]
    reference = SimpleNamespace(journal=SimpleNamespace(steps=records))
    evidence = SimpleNamespace(a=reference, forced=SimpleNamespace(path=folder))
    return step_with_its_data(pair, cast(PairEvidence, evidence))


def culprit(**said: Any) -> Culprit:
    proof = Proof(SwappedIn(True), SwappedOut(True))
    return Culprit(**{"kind": "setup", "status": "culprit", "phase": "data", "step": 0, "proof": proof, **said})


def test_data_from_before_step_0_are_made_in_another_one(tmp_path: Path) -> None:
    assert looked_into(tmp_path, [culprit()]) == 6


def test_of_steps_without_a_tape_the_first_beyond_rounding_is_taken(tmp_path: Path) -> None:
    assert looked_into(tmp_path, [culprit()], taped=()) == 4


def test_of_two_optimizers_in_turns_it_is_a_step_of_the_same_one(tmp_path: Path) -> None:
    assert looked_into(tmp_path, [culprit()], optimizers=(0, 1, 1, 0, 0, 1, 1)) == 4
    assert looked_into(tmp_path, [culprit()], optimizers=(0, 1, 1, 1, 1, 1, 1)) is None


@pytest.mark.parametrize("other", [{"op": "aten.randint"}, {"step": 4}, {"kind": "arguments", "op": "aten.fill_"}])
def test_what_has_an_op_or_lies_elsewhere_asks_for_no_other_step(tmp_path: Path, other: dict[str, Any]) -> None:
    assert looked_into(tmp_path, [culprit(**other)]) is None
    assert looked_into(tmp_path, [culprit(), culprit(**other)]) is None
    assert looked_into(tmp_path, []) is None
