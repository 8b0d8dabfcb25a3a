from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.observers.state.training_state import StateFiles, TrainingState, in_units, states_from
from numdrift.harness.records.run.step_selection import StepSelection


def state(numbers: int) -> TrainingState:
    return TrainingState({"parameter a": torch.zeros(numbers)}, {"schema": 1})


def files(run: Path, steps: str) -> tuple[StateFiles, list[str]]:
    told: list[str] = []
    return StateFiles(run, StepSelection.parse(steps), told.append), told


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says how much the disk has."""

    def has(size: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(size, 0, size))

    return has


def test_states_are_told_once_and_written(tmp_path: Path, free: Any) -> None:
    free(10_000)
    kept, told = files(tmp_path, "0-9")
    for step in range(3):
        assert kept.wants(step)
        kept.write(step, state(100), state(100).tensors)
    assert [path.name for path in sorted((tmp_path / "states").iterdir())] == [
        f"state-00000{step}.safetensors" for step in range(3)
    ]
    assert len(told) == 1 and "400 bytes" in told[0] and str(tmp_path) in told[0]


def test_states_that_do_not_fit_are_given_up_before_the_first(tmp_path: Path, free: Any) -> None:
    free(3_999)
    kept, told = files(tmp_path, "0-9")
    kept.write(0, state(100), state(100).tensors)
    assert list((tmp_path / "states").iterdir()) == [] and not kept.wants(1)
    assert len(told) == 1
    assert "3.9 KiB" in told[0] and "400 bytes" in told[0] and str(tmp_path) in told[0]


def test_room_is_asked_for_anew_when_states_grow(tmp_path: Path, free: Any) -> None:
    free(10_000)
    kept, told = files(tmp_path, "0-9")
    kept.write(0, state(10), state(10).tensors)
    kept.write(1, state(100), state(100).tensors)
    kept.write(2, state(1000), state(1000).tensors)
    assert len(list((tmp_path / "states").iterdir())) == 2 and not kept.wants(3)
    assert len(told) == 3 and "no states are kept from step 2 on" in told[2]


def test_a_full_disk_is_told_and_not_raised(tmp_path: Path) -> None:
    (tmp_path / "states").write_text("in the way")
    kept, told = files(tmp_path, "0-9")
    kept.write(0, state(1), state(1).tensors)
    assert len(told) == 1 and "cannot be written" in told[0] and not kept.wants(1)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=5), st.integers(0, 40))
def test_the_states_to_come_are_counted(ranges: list[tuple[int, int]], first: int) -> None:
    steps = StepSelection(tuple((begin, begin + length) for begin, length in ranges))
    assert states_from(steps, first) == sum(step in steps for step in range(first, 50))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 9), st.integers(0, 70))
def test_the_states_of_a_spaced_range_are_counted(begin: int, length: int, distance: int, first: int) -> None:
    steps = StepSelection(spaced=((begin, begin + length, distance),))
    assert states_from(steps, first) == sum(step in steps for step in range(first, 70))


def test_an_endless_schedule_counts_its_first_steps() -> None:
    assert states_from(StepSelection.parse("0-99,100-/100"), 10) == 90


def test_an_open_selection_counts_as_one_state() -> None:
    assert states_from(StepSelection(), 5) == 1 == states_from(StepSelection(((7, None),)), 5)


def test_sizes_are_said_in_units() -> None:
    assert [in_units(size) for size in (0, 12, 1536, 5 * 2**20, 3 * 2**30)] == [
        "0 bytes",
        "12 bytes",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
