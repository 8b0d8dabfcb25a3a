"""Values that an earlier file has: what the new file gives back, and what it takes on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import JournalError
from numdrift.harness.runs.mapped_tensors import read_tensor_file
from numdrift.harness.tape.files.earlier_values import files_of_step, link_if_equal
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.harness.tape.large_values import LARGE

COUNT = LARGE // 4
"""The number of float32 elements of the smallest large value."""


def large(seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "cpu" / "states" / "state-000001.safetensors"
    path.parent.mkdir(parents=True)
    write_tensors(path, {"parameter w": large(0), "state w.exp_avg": large(1), "loss 0": torch.tensor(2.0)}, {})
    return path


@pytest.fixture
def outcome(tmp_path: Path) -> Path:
    path = tmp_path / "evidence" / "cpu-again" / "outcomes" / "outcome-000000.safetensors"
    path.parent.mkdir(parents=True)
    return path


def values() -> dict[str, torch.Tensor]:
    """One value that the state has under its own name, one under another name and as bytes, and two that it lacks."""
    changed = large(0)
    changed[-1] += 1
    renamed = large(1).view(torch.uint8)
    return {"parameter w": large(0), "input 3": renamed, "gradient 0 w": changed, "loss 0": torch.tensor(2.0)}


@pytest.mark.parametrize("maps", [False, True])
def test_all_values_come_back(state: Path, outcome: Path, maps: bool) -> None:
    write_tensors(outcome, values(), {"step": 0}, [state])
    tensors, facts = read_tensors(outcome, maps=maps)
    assert tensors.keys() == values().keys() and facts["step"] == 0
    for name, value in values().items():
        assert tensors[name].dtype == value.dtype and torch.equal(tensors[name], value)
    arrays = read_tensor_file(outcome)
    for name, value in values().items():
        assert arrays.dtypes[name] == str(value.dtype).removeprefix("torch.")
        assert arrays.tensors[name].tobytes() == value.numpy().tobytes()


def test_only_what_the_earlier_file_lacks_is_written(state: Path, outcome: Path) -> None:
    write_tensors(outcome, values(), {}, [state])
    assert outcome.stat().st_size < LARGE + 2000  # the changed value and the header
    (link,) = outcome.parent.glob("earlier-*")
    assert link.samefile(state)


def test_a_value_stays_when_the_earlier_run_is_removed_or_replaced(state: Path, outcome: Path) -> None:
    write_tensors(outcome, values(), {}, [state])
    write_tensors(state, {"parameter w": large(7)}, {})
    assert torch.equal(read_tensors(outcome)[0]["parameter w"], large(0))
    state.unlink()
    assert torch.equal(read_tensors(outcome)[0]["parameter w"], large(0))


def test_a_file_is_found_through_another_that_links_it(state: Path, outcome: Path) -> None:
    write_tensors(outcome, values(), {}, [state])
    third = outcome.with_name("outcome-000001.safetensors")
    write_tensors(third, values(), {}, [outcome, state])
    assert third.stat().st_size < 2000
    assert all(torch.equal(read_tensors(third)[0][name], value) for name, value in values().items())


def test_another_dtype_with_the_same_bytes_keeps_its_dtype(state: Path, outcome: Path) -> None:
    write_tensors(outcome, {"parameter w": large(0).view(torch.int32)}, {}, [state])
    assert outcome.stat().st_size < 2000
    assert torch.equal(read_tensors(outcome)[0]["parameter w"], large(0).view(torch.int32))


def test_small_and_unreadable_files_are_no_help(state: Path, outcome: Path, tmp_path: Path) -> None:
    damaged, missing = tmp_path / "damaged", tmp_path / "missing"
    damaged.write_bytes(state.read_bytes()[:-1])
    write_tensors(outcome, {"loss 0": torch.tensor(2.0), "w": large(0)}, {}, [damaged, missing])
    assert outcome.stat().st_size > LARGE and not list(outcome.parent.glob("earlier-*"))


def test_without_hard_links_values_are_written_again(
    state: Path, outcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    write_tensors(outcome, values(), {}, [state])
    assert outcome.stat().st_size > 3 * LARGE
    assert torch.equal(read_tensors(outcome)[0]["parameter w"], large(0))


def test_a_file_that_is_replaced_meanwhile_is_no_help(
    state: Path, outcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def replaced(path: Path, to: Path) -> None:
        write_tensors(state, {"parameter w": large(7)}, {})
        link(path, to)

    monkeypatch.setattr(os, "link", replaced)
    write_tensors(outcome, values(), {}, [state])
    assert all(torch.equal(read_tensors(outcome)[0][name], value) for name, value in values().items())


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (["../../../cpu/states/state-000001.safetensors", "parameter w", "F32", [COUNT]], "cannot be beside"),
        (["earlier-1.safetensors", "nothing", "F32", [COUNT]], "damaged header"),
        (["earlier-1.safetensors", "parameter w", "F32", [COUNT + 1]], "does not match"),
        (["earlier-1.safetensors", "parameter w", "S32", [COUNT]], "unknown dtype"),
        (["earlier-2.safetensors", "parameter w", "F32", [COUNT]], "No such file"),
        (["earlier-1.safetensors"], "damaged header"),
    ],
)
def test_a_place_that_cannot_be_true_is_refused(
    state: Path, outcome: Path, place: list[object], complaint: str
) -> None:
    os.link(state, outcome.with_name("earlier-1.safetensors"))
    write_tensors(outcome, {}, {"elsewhere": {"parameter w": place}})
    for read in (read_tensors, read_tensor_file):
        with pytest.raises(JournalError, match=complaint):
            read(outcome)


def test_the_files_of_a_step_are_its_states_and_its_outcome(state: Path, outcome: Path, tmp_path: Path) -> None:
    outcome.touch()
    runs = [tmp_path / "cpu", tmp_path / "evidence" / "cpu-again", tmp_path / "missing"]
    assert files_of_step(runs, 0) == [state, outcome]
    assert files_of_step(runs, 1) == [state]
    assert files_of_step(runs, 2) == []


def test_a_file_with_the_same_bytes_becomes_a_link(tmp_path: Path) -> None:
    earlier, other, again = (tmp_path / name for name in ("earlier", "other", "again"))
    earlier.write_bytes(b"same")
    other.write_bytes(b"else")
    again.write_bytes(b"same")
    link_if_equal(again, [tmp_path / "missing", other, earlier])
    assert again.samefile(earlier)
    assert {path.name for path in tmp_path.iterdir()} == {"again", "earlier", "other"}
    link_if_equal(other, [earlier])
    assert not other.samefile(earlier)
