from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import JournalError
from numdrift.harness.tape.files.tape_file import read_tape, write_tape
from numdrift.harness.tape.placed import placed
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.tape import Tape

from .trainings import started


def on_device(tape: Tape, device: str) -> Tape:
    """The tape as it would have been recorded on an accelerator."""
    return replace(placed(tape, device), inputs=tape.inputs)


def test_a_tape_of_a_device_that_is_not_here_comes_on_the_cpu(tmp_path: Path) -> None:
    tape = started("images").taped(3)
    write_tape(tmp_path / "tape", on_device(tape, "cuda:0"))
    asked: list[set[str]] = []

    def opened(devices: Collection[str]) -> bool:
        asked.append(set(devices))
        return False

    # when
    found = read_tape(tmp_path / "tape", opened)
    # then
    assert asked == [{"cuda:0"}]
    values = Replay(found).run(AsRecorded())
    assert all(is_same(values[name], value) for name, value in tape.expected().items())


def test_a_tape_keeps_its_device_where_it_is_here(tmp_path: Path) -> None:
    tape = on_device(started("images").taped(3), "cuda:0")
    write_tape(tmp_path / "tape", tape)
    found = read_tape(tmp_path / "tape")
    assert {slot.device for slot in found.slots} == {"cuda:0"}
    # what is on the tape lies in the CPU's memory all the same
    assert all(value.is_cpu for value in (*found.inputs.values(), *found.expected().values()))


def test_what_was_drawn_stays_where_the_generator_is_lost() -> None:
    tape = started("mlp").taped(3)
    drawing = [call for call in tape.calls if call.draw is not None]
    assert drawing
    moved = [call for call in placed(tape, "cuda:0").calls if call.draw is not None]
    assert all(call.draw is not None and not call.draw.states for call in moved)
    for before, after in zip(drawing, moved, strict=True):
        assert before.draw is not None and after.draw is not None
        assert all(map(torch.equal, before.draw.drawn, after.draw.drawn))


def test_a_device_of_no_name_is_refused(tmp_path: Path) -> None:
    tape = started("mlp").taped(3)
    call = replace(tape.calls[0], keywords={"device": torch.device("cuda:0")})
    write_tape(tmp_path / "tape", replace(tape, calls=(call, *tape.calls[1:])))
    text = (tmp_path / "tape").read_bytes().replace(b"cuda:0", b"nobody")
    (tmp_path / "tape").write_bytes(text)
    with pytest.raises(JournalError, match="unknown device 'nobody'"):
        read_tape(tmp_path / "tape")
