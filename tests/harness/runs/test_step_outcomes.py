from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from numdrift.harness.errors import JournalError
from numdrift.harness.runs.step_outcomes import (
    exact_steps,
    outcome_steps,
    read_exact,
    read_noise_record,
    read_outcome,
    read_state,
    state_steps,
)
from numdrift.harness.tape.files.tensor_file import write_tensors


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with outcomes of steps 2 and 1000000, a state of step 2, and other files beside them."""
    for folder in ("outcomes", "states", "tapes"):
        (tmp_path / folder).mkdir()
    for step in (1_000_000, 2):
        path = tmp_path / "outcomes" / f"outcome-{step:06d}.safetensors"
        write_tensors(path, {"loss 0": torch.tensor(float(step))}, {"schema": 1, "step": step})
    write_tensors(tmp_path / "states/state-000002.safetensors", {"parameter w": torch.ones(2)}, {"step": 2})
    (tmp_path / "outcomes/outcome-000003.safetensors.part").write_bytes(b"")
    (tmp_path / "tapes/tape-000002.safetensors").write_bytes(b"")
    return tmp_path


def test_steps_are_found_in_order(run: Path) -> None:
    assert outcome_steps(run) == [2, 1_000_000]
    assert state_steps(run) == [2]
    assert exact_steps(run) == []
    assert outcome_steps(run / "nothing") == []


def test_values_are_read(run: Path) -> None:
    assert read_outcome(run, 1_000_000).tensors["loss 0"] == 1_000_000.0
    assert np.array_equal(read_state(run, 2).tensors["parameter w"], [1.0, 1.0])
    assert read_exact(run, 2) is None
    assert read_noise_record(run, 2) is None


def test_a_step_that_was_not_kept_names_those_that_were(run: Path) -> None:
    with pytest.raises(JournalError, match="step 5 was not kept; steps with an outcome: 2, 1000000"):
        read_outcome(run, 5)


def test_damage_names_the_file_and_what_is_readable(run: Path) -> None:
    # given
    path = run / "outcomes" / "outcome-000002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    # then
    with pytest.raises(JournalError, match=r"outcome-000002.*; steps with an outcome: 1000000$"):
        read_outcome(run, 2)


def test_a_file_of_another_step_is_refused(run: Path) -> None:
    # given
    (run / "outcomes" / "outcome-000002.safetensors").rename(run / "outcomes" / "outcome-000004.safetensors")
    # then
    with pytest.raises(JournalError, match="belongs to step 2, not to step 4"):
        read_outcome(run, 4)
