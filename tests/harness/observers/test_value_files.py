from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.observers.values.tensor_buffers import pickled_bytes
from numdrift.harness.observers.values.value_files import ValueFiles, level_of
from numdrift.harness.records.frames import HEADER, LAST_VALUES, TRAILER, scan_frames
from numdrift.harness.records.run.step_selection import KeepParams
from numdrift.harness.runs.numpy_values import NUMPY_TYPES, as_numbers

ELEMENTS = 4
PICKLED = 4 * ELEMENTS
FRAME = HEADER.size + 4 * ELEMENTS + TRAILER.size + PICKLED
"""Bytes of one step's values here: those in the journal, and those in the pickle that is made of them."""


def values_of(step: int) -> list[torch.Tensor]:
    return [torch.full((ELEMENTS,), float(step))]


def on_disk(folder: Path) -> int:
    """The bytes of the values and of the pickle to be made of them."""
    return sum(path.stat().st_size for path in folder.glob("values-*.bin")) + PICKLED * len(kept(folder))


def kept(folder: Path) -> list[int]:
    """The steps whose values are on disk, each as often as it is there."""
    return sorted(frame.step for path in folder.glob("values-*.bin") for frame in scan_frames(path))


class Run:
    """A run of one tensor whose values are kept in `folder`."""

    def __init__(self, folder: Path, keep: str, frames_allowed: float) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self.most = 0
        policy = KeepParams.parse(keep)
        self.files = ValueFiles(folder, policy, int(frames_allowed * FRAME), self.notices.append)

    def train(self, steps: int) -> Run:
        for step in range(steps):
            self.files.keep(0, step, values_of(step))
            self.most = max(self.most, on_disk(self.folder))
        return self

    def end(self, steps: int) -> Run:
        self.files.write_last(0, steps - 1, values_of(steps - 1))
        return self


@given(st.integers(0, 400))
def test_level_counts_how_often_two_divides(index: int) -> None:
    assert level_of(index) == next((level for level in range(63) if index >> level & 1), 63)


def test_everything_is_kept_within_the_budget(tmp_path: Path) -> None:
    run = Run(tmp_path, "all", 50).train(50).end(50)
    assert kept(tmp_path) == list(range(50))
    assert run.notices == []


def test_values_are_the_tensors_bytes(tmp_path: Path) -> None:
    Run(tmp_path, "all", 50).train(3)
    for path in tmp_path.glob("values-*.bin"):
        for frame in scan_frames(path):
            payload = path.read_bytes()[frame.offset : frame.offset + frame.length]
            assert payload == values_of(frame.step)[0].numpy().tobytes()


@settings(max_examples=30)
@given(st.integers(1, 300), st.floats(1, 40), st.integers(1, 3))
def test_a_long_run_stays_within_its_budget(steps: int, frames_allowed: float, every: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        # given
        folder = Path(name)
        # when
        run = Run(folder, f"every={every}", frames_allowed).train(steps)
        # then it is within the budget after every write, and evenly spaced from step 0 on
        assert run.most <= frames_allowed * FRAME
        found = kept(folder)
        spacing = every
        while found != list(range(0, steps, spacing)):
            spacing *= 2
            assert spacing <= 4 * steps + every, found
        # and the last step is kept besides, once
        run.end(steps)
        assert kept(folder) == sorted({*found, steps - 1})
        assert on_disk(folder) <= (frames_allowed + 1) * FRAME
        # and it says so when something was dropped
        assert bool(run.notices) == (spacing > every)


def test_one_frame_larger_than_the_budget_is_kept_all_the_same(tmp_path: Path) -> None:
    run = Run(tmp_path, "all", 0.5).train(9).end(9)
    assert kept(tmp_path) == [0, 8]
    assert run.notices


def test_the_notice_says_what_is_kept_from_now_on(tmp_path: Path) -> None:
    run = Run(tmp_path, "every=3", 4).train(13)
    assert len(run.notices) == 1
    assert "kept at one step in 2" in run.notices[0] and "--keep-params" in run.notices[0]


@pytest.mark.parametrize(
    ("keep", "steps", "expected"),
    [
        ("last", 5, [4]),
        ("last", 1, [0]),
        ("every=2", 5, [0, 2, 4]),
        ("every=2", 6, [0, 2, 4, 5]),
        ("every=10", 4, [0, 3]),
        ("all", 3, [0, 1, 2]),
    ],
)
def test_policies(tmp_path: Path, keep: str, steps: int, expected: list[int]) -> None:
    Run(tmp_path, keep, 100).train(steps).end(steps)
    assert kept(tmp_path) == expected


def test_a_last_step_that_was_thinned_out_is_written_again(tmp_path: Path) -> None:
    # given a run whose last step is the one that exceeds the budget, so that it is dropped at once
    run = Run(tmp_path, "all", 5).train(6)
    assert kept(tmp_path) == [0, 2, 4]
    # when
    run.end(6)
    # then
    assert kept(tmp_path) == [0, 2, 4, 5]
    assert (tmp_path / LAST_VALUES).exists()


def test_steps_of_any_spacing_stay_within_the_budget(tmp_path: Path) -> None:
    """Thinning counts the steps that are offered, not their numbers: odd steps alone are halved as well."""
    files = ValueFiles(tmp_path, KeepParams(), 10 * FRAME, lambda text: None)
    for step in range(1, 400, 2):
        files.keep(0, step, values_of(step))
        assert on_disk(tmp_path) <= 11 * FRAME


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "complex32", "int64", "bool"]
)
def test_the_pickle_is_counted_as_it_will_be(dtype: str) -> None:
    tensor = torch.zeros(3, 5, dtype=getattr(torch, dtype))
    bits = np.zeros((3, 5), NUMPY_TYPES[dtype])
    assert pickled_bytes(tensor) == as_numbers(bits, dtype).nbytes


def test_values_are_those_of_each_step_wherever_they_lie(tmp_path: Path) -> None:
    parameter = torch.arange(6.0).reshape(2, 3)
    steps = [
        parameter.clone(),
        parameter.mul_(2).clone(),  # in the same memory
        parameter.t().clone(),  # the same memory, read in another order
        torch.full((2, 3), 7.0),
    ]
    files = ValueFiles(tmp_path, KeepParams.parse("all"), 1 << 20, lambda text: None)

    parameter = torch.arange(6.0).reshape(2, 3)
    files.keep(0, 0, [parameter])
    files.keep(0, 1, [parameter.mul_(2)])
    files.keep(0, 2, [parameter.t()])
    files.keep(0, 3, [torch.full((2, 3), 7.0)])

    written = {
        frame.step: path.read_bytes()[frame.offset :][: frame.length]
        for path in tmp_path.glob("values-*.bin")
        for frame in scan_frames(path)
    }
    assert written == {step: values.numpy().tobytes() for step, values in enumerate(steps)}
