"""A step is executed again as torch was set in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import JournalError
from numdrift.harness.tape.files.tape_file import read_tape, write_tape
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.step_settings import current_settings, settings_of_step
from numdrift.harness.tape.tape import Tape


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = current_settings()
    yield
    with settings_of_step(before):
        assert current_settings() == before
    torch.set_flush_denormal(False)
    torch.set_num_threads(before["threads"])
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision(before["matmul_precision"])
    torch.backends.mkldnn.enabled = before["mkldnn"]


def recorded() -> Tape:
    recorder = TapeRecorder(0, "train.py", modules=False)
    recorder.start()
    recorder.watch("loss", torch.ones(3).sum())
    recorder.stop()
    return recorder.tape()


def test_a_tape_knows_what_its_step_was_set_to(tmp_path: Path) -> None:
    # given a script that has set what it likes
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    write_tape(tmp_path / "tape", recorded())
    # and set otherwise afterwards
    torch.set_num_threads(2)
    torch.set_flush_denormal(False)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    # when
    tape = read_tape(tmp_path / "tape")
    with settings_of_step(tape.settings):
        # then it is as in the step, to torch and to its arithmetic
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (1, "medium")
        assert torch.is_deterministic_algorithms_warn_only_enabled() and not torch.backends.mkldnn.enabled
        assert not (torch.tensor(1e-38) / 1024).count_nonzero()
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "highest")
    assert (torch.tensor(1e-38) / 1024).count_nonzero()


def test_what_is_no_setting_is_refused_or_left(tmp_path: Path) -> None:
    # a setting of another torch is left, and one that cannot be is not put in place
    with settings_of_step({"of_the_future": 3, "matmul_precision": "none", "threads": -1}):
        assert current_settings()["matmul_precision"] != "none"
    broken = recorded()
    write_tape(tmp_path / "tape", Tape(0, broken.slots, broken.inputs, broken.calls, broken.watched, {"threads": [1]}))
    with pytest.raises(JournalError, match="settings"):
        read_tape(tmp_path / "tape")


def test_what_is_set_at_the_beginning_of_a_step_is_the_steps() -> None:
    # given a step that has begun where the one before it has ended
    recorder = TapeRecorder(5, "train.py", modules=False)
    recorder.start()
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    x = torch.ones(3).exp()
    # what is set behind its first op is the next step's
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    recorder.watch("loss", x.sum())
    recorder.stop()
    assert recorder.tape().settings["mkldnn"] is False
