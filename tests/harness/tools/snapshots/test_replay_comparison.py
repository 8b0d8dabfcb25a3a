from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from numdrift.harness.snapshots.snapshot_record import Snapshot
from numdrift.harness.tools.snapshots.replay_answer import answer_of, compared

from ...snapshots.samples import snapshot_of, written


def values_of(snapshot: Snapshot) -> list[torch.Tensor]:
    return [one.clone() for one in snapshot.output_values() if one is not None]


def test_what_rounding_does_is_within_rounding() -> None:
    # given a step whose outputs are each moved by two units in the last place
    snapshot = snapshot_of("sam")
    values = [one * (1 + 2 * torch.finfo(one.dtype).eps) for one in values_of(snapshot)]
    # when
    found = compared(snapshot, values)
    # then
    assert not found.beyond and not found.identical and not found.unmeasured
    moved = [one for one in found.outputs if one.state == "within rounding"]
    assert moved and all(one.max_ulp is not None and 1 <= one.max_ulp <= 4 for one in moved)
    assert all(one.relative_l2 is not None and one.relative_l2 < 1e-6 for one in moved)


def test_a_fault_is_beyond_rounding() -> None:
    snapshot = snapshot_of("sam")
    values = values_of(snapshot)
    values[0] = values[0] * 1.001
    (beyond,) = compared(snapshot, values).beyond
    assert beyond.name == snapshot.outputs[0].name
    assert beyond.of_rounding is not None and beyond.of_rounding > 16


@pytest.mark.parametrize("instead", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_beyond_rounding(instead: float) -> None:
    snapshot = snapshot_of("sam")
    values = values_of(snapshot)
    values[-1].view(-1)[0] = instead
    assert len(compared(snapshot, values).beyond) == 1


def test_equal_values_need_not_have_the_same_bits() -> None:
    snapshot = snapshot_of("sam")
    zeros = torch.zeros(3)
    tape = snapshot.tape
    watched = (replace(tape.watched[0], value=zeros), *tape.watched[1:])
    snapshot = snapshot_of("sam", tape=replace(tape, watched=watched))
    found = compared(snapshot, [-zeros, *values_of(snapshot)[1:]])
    assert found.outputs[0].state == "equal" and not found.identical and not found.beyond


def test_another_shape_or_dtype_is_beyond_rounding() -> None:
    snapshot = snapshot_of("sam")
    values = values_of(snapshot)
    values[0], values[1] = values[0].double(), values[1].reshape(-1, 1)
    assert len(compared(snapshot, values).beyond) == 2


def test_integers_that_differ_are_beyond_rounding_unless_rounding_turns_them() -> None:
    snapshot = snapshot_of("mlp")
    values = values_of(snapshot)
    at = next(number for number, one in enumerate(values) if one.dtype == torch.int64)
    values[at] = values[at] + 1
    (beyond,) = compared(snapshot, values).beyond
    assert (beyond.differing, beyond.max_ulp) == (1, None)


def test_an_error_where_there_was_none(tmp_path: Path) -> None:
    answer = answer_of(written(tmp_path, "sam", error="IndexError: index out of range"), "cpu")
    assert not answer.holds and "it raises no error here" in answer.text
