"""Values that lie in a file: the same bits as in memory, and no memory of the process."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.tape import large_values
from numdrift.harness.tape.files import tensor_file
from numdrift.harness.tape.files.tape_file import read_tape, tape_file, write_tape
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.harness.tape.large_values import LARGE, LargeValues, give_back_pages
from numdrift.harness.tape.replaying.ensemble import measure_settled
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.tape import Tape

from .trainings import recorded, started

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]


def resident() -> int:
    """Return the bytes of memory of this process."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copy_in_a_file_has_every_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    value = torch.randn(3, LARGE).to(dtype)
    copy = LargeValues(tmp_path, in_memory=0).copy(value)
    assert is_same(copy, value) and copy.data_ptr() != value.data_ptr() and copy.data_ptr() % 64 == 0


def test_copies_in_a_file_take_no_memory_until_they_are_read(tmp_path: Path) -> None:
    # given
    large, value = LargeValues(tmp_path, in_memory=0), torch.ones(64 * LARGE // 4)
    before = resident()
    # when
    copies = [large.copy(value) for _ in range(4)]
    after_copying = resident()
    total = sum(float(copy.sum()) for copy in copies)
    after_reading = resident()
    for copy in copies:
        give_back_pages(copy)
    # then
    assert total == 4 * value.numel()
    assert after_copying - before < 64 * LARGE
    assert after_reading - after_copying > 3 * 64 * LARGE
    assert resident() - before < 64 * LARGE


def test_small_values_and_those_within_the_budget_stay_in_memory(tmp_path: Path) -> None:
    # given a budget for one large value
    large = LargeValues(tmp_path, in_memory=LARGE)
    values = [torch.ones(LARGE, dtype=torch.uint8), torch.ones(10), torch.zeros(LARGE, dtype=torch.uint8)]
    # when
    copies = [large.copy(value) for value in values]
    # then only what was written to a copy in a file is gone when its pages are
    for copy in copies:
        copy.fill_(7)
        give_back_pages(copy)
    assert [int(copy[0]) for copy in copies] == [7, 7, 0]


def test_the_file_is_gone_with_its_values(tmp_path: Path) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    copies = [LargeValues(tmp_path, in_memory=0).copy(torch.ones(LARGE)) for _ in range(20)]
    assert not list(tmp_path.iterdir())
    del copies
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


@pytest.mark.parametrize("fails", ["truncate", "pwrite"])
def test_on_a_full_disk_copies_are_in_memory(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    large, value = LargeValues(tmp_path, in_memory=0), torch.randn(LARGE)
    first = large.copy(value)
    monkeypatch.setattr(large_values, "CHUNK", mmap.PAGESIZE)
    monkeypatch.setattr(os, fails, full)
    assert all(is_same(copy, value) for copy in (large.copy(value), first, large.copy(value)))


def test_what_a_file_of_tensors_maps_is_what_it_holds(tmp_path: Path) -> None:
    # given tensors of sizes that do and do not let the next one begin at a multiple of 64 bytes
    tensors = {f"{dtype} {size}": torch.randn(size).to(dtype) for dtype in DTYPES for size in (5, LARGE, LARGE + 3)}
    write_tensors(tmp_path / "file", tensors, {})
    # when
    found, _ = read_tensors(tmp_path / "file", maps=True)
    # then
    assert set(found) == set(tensors) and all(is_same(found[name], value) for name, value in tensors.items())
    assert all(value.data_ptr() % 64 == 0 for value in found.values() if value.nbytes >= LARGE)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every value of a tape lie in a file."""
    monkeypatch.setattr(large_values, "LARGE", 1)
    monkeypatch.setattr(tensor_file, "LARGE", 1)


def taped(large: LargeValues | None) -> Tape:
    training = started("transformer", 0)
    training.step()
    with recorded(large=large) as recorder:
        training.step(recorder.watch)
    return recorder.tape()


@pytest.mark.usefixtures("everything_is_large")
def test_a_tape_in_files_replays_and_is_measured_as_one_in_memory(tmp_path: Path) -> None:
    # given the same step, on a tape in memory and on one in a file
    in_memory, in_file = taped(None), taped(LargeValues(tmp_path, in_memory=0))
    # when the latter is written and read again, too
    write_tape(tape_file(tmp_path, 0), in_file)
    read = read_tape(tape_file(tmp_path, 0))
    # then
    expected = in_memory.expected()
    for tape in (in_file, read):
        for values in (tape.expected(), Replay(tape).run(AsRecorded(), LargeValues(tmp_path, in_memory=0))):
            assert list(values) == list(expected)
            assert all(is_same(values[name], value) for name, value in expected.items())
    noises = [measure_settled(tape, 3, always=True, folder=tmp_path)[0].tensors for tape in (in_memory, in_file, read)]
    assert noises[0] == noises[1] == noises[2] and any(noise.rms for noise in noises[0].values())
