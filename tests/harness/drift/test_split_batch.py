"""A batch that one run passes to its model at once, and the other in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numdrift.harness.drift.setup.setup_triage import setup_differences
from numdrift.harness.drift.setup.split_batch import Side, SplitBatch, split_batch, total_losses
from numdrift.harness.runs.content_hash import content_hash
from numdrift.harness.runs.mapped_tensors import TensorFile
from numdrift.harness.runs.recorded_run import RecordedRun

from .recordings import Argument, Step, record, tensors

Array = NDArray[Any]

RNG = np.random.default_rng(0)
DATA: Array = RNG.integers(0, 30, (4, 16, 12))
"""The batches of four steps."""
MASK: Argument = ("bool", (12, 12), "mask")


def argument(values: Array) -> Argument:
    return str(values.dtype), values.shape, content_hash(values)


def whole(losses: Sequence[float] = (4.0,)) -> list[Step]:
    return [Step(losses, batches=[(argument(batch), MASK)]) for batch in DATA]


def in_parts(*ends: int, losses: Sequence[float] = (1.0, 1.0, 1.0, 1.0), order: int = 1) -> list[Step]:
    return [Step(losses, batches=[(argument(rows), MASK) for rows in np.split(batch, ends)[::order]]) for batch in DATA]


def kept(side: Side, steps: Sequence[int] = (0, 2)) -> Any:
    files = {step: tensors({"input 0": DATA[step]}) for step in steps}

    def of(asked: Side) -> Mapping[int, TensorFile]:
        return files if asked == side else {}

    return of


def runs(folder: Path, a: Sequence[Step], b: Sequence[Step]) -> tuple[RecordedRun, RecordedRun]:
    return record(folder / "cpu", a), record(folder / "split", b)


def split_of(folder: Path, a: Sequence[Step], b: Sequence[Step], of: Any) -> SplitBatch | None:
    return split_batch(*runs(folder, a, b), of)


def test_parts_that_are_the_rows_of_the_batch_are_the_same_data(tmp_path: Path) -> None:
    a, b = runs(tmp_path, whole(), in_parts(4, 8, 12))
    split = split_batch(a, b, kept("a"))
    assert split is not None and split.is_same_data
    assert (split.side, split.calls, split.checked, sorted(split.steps)) == ("b", 4, (0, 2), [0, 1, 2, 3])
    assert split.in_words("cpu", "split") == "split calls the model 4 times in a step, each time with [4, 12]"
    assert setup_differences(a, b, split=split) == []
    # without the knowledge of the split the same runs differ in their batch
    assert [one.kind for one in setup_differences(a, b)] == ["batch"]


def test_the_reference_may_be_the_side_that_splits_into_unequal_parts(tmp_path: Path) -> None:
    split = split_of(tmp_path, in_parts(6, 13), whole(), kept("b"))
    assert split is not None and split.is_same_data
    assert split.in_words("parts", "cpu") == "parts calls the model 3 times in a step, with [6, 12], [7, 12], [3, 12]"


def test_parts_in_another_order_are_other_data(tmp_path: Path) -> None:
    a, b = runs(tmp_path, whole(), in_parts(4, 8, 12, order=-1))
    split = split_batch(a, b, kept("a"))
    assert split is not None and not split.is_same_data
    (difference,) = setup_differences(a, b, split=split)
    assert difference.text.endswith("each time with [4, 12], and in step 0 the rows are not those of the batch of cpu")


def test_rows_that_no_run_kept_are_not_taken_for_the_batch(tmp_path: Path) -> None:
    a, b = runs(tmp_path, whole(), in_parts(4, 8, 12))
    split = split_batch(a, b, kept("a", ()))
    assert split is not None and not split.is_same_data
    (difference,) = setup_differences(a, b, split=split)
    assert difference.text.endswith("`numdrift investigate` compares the rows with the batch of cpu")


@pytest.mark.parametrize(
    "b",
    [
        whole(),
        [Step(batches=step.batches[:3]) for step in in_parts(4, 8, 12)],
        [Step(batches=[(one, ("bool", (6, 6), "mask")) for one, _ in step.batches]) for step in in_parts(8)],
        [Step(batches=[call[:1] for call in step.batches]) for step in in_parts(8)],
        [Step(batches=[(("int32", *one[1:]), MASK) for one, _ in step.batches]) for step in in_parts(8)],
    ],
    ids=["one call", "rows missing", "mask of another shape", "fewer arguments", "dtype"],
)
def test_calls_that_do_not_add_up_are_no_split(tmp_path: Path, b: Sequence[Step]) -> None:
    assert split_of(tmp_path, whole(), b, kept("a")) is None


def test_the_losses_of_all_parts_are_compared_together(tmp_path: Path) -> None:
    same = total_losses(*runs(tmp_path / "same", whole(), in_parts(4, 8, 12)))
    apart = total_losses(*runs(tmp_path / "apart", whole(), in_parts(4, 8, 12, losses=(1.0, 1.0, 1.0, 1.5))))
    assert same.first_differing_step is None
    assert (apart.first_differing_step, apart.max_relative) == (0, 0.125)
