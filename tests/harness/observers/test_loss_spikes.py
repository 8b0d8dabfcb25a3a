from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.observers.values.ended_step import Table
from numdrift.harness.observers.values.held_steps import HELD, DigestedStep, HeldSteps
from numdrift.harness.observers.values.loss_spikes import LEAST, WINDOW, SpikeRule
from numdrift.harness.records.frames import scan_frames
from numdrift.harness.records.values.digest_record import ABSENT, Digest, pack
from numdrift.harness.script.named_tensors import NamedTensor
from numdrift.harness.tape.files.journal_writing import FrameFile

FIRST, MASK, LAST = (
    NamedTensor("first.weight", "parameter", torch.zeros(2)),
    NamedTensor("mask", "buffer", torch.zeros(2)),
    NamedTensor("last.weight", "parameter", torch.zeros(2)),
)
TABLE = Table(0, (FIRST, MASK, LAST), (FIRST, LAST))


def spikes(losses: Sequence[float]) -> list[int]:
    rule = SpikeRule()
    return [step for step, loss in enumerate(losses) if rule.exceeded(loss) is not None]


def expected(losses: Sequence[float]) -> list[int]:
    """The formula of the docstring, in numpy and without a state."""
    found = []
    for step, loss in enumerate(losses):
        window = np.array(losses[max(0, step - WINDOW) : step])
        if len(window) >= LEAST:
            median = np.median(window)
            scale = max(1.4826 * np.median(np.abs(window - median)), 0.01 * abs(median))
            if loss > median + 6 * scale:
                found.append(step)
    return found


@given(st.lists(st.floats(-10, 10) | st.sampled_from([50.0, 1e6]), max_size=150))
def test_a_spike_is_what_the_formula_says(losses: list[float]) -> None:
    assert spikes(losses) == expected(losses)


def test_noise_and_a_falling_loss_are_no_spikes() -> None:
    noise = np.random.default_rng(0).normal(size=2000)
    assert spikes(list(5 * np.exp(-np.arange(2000) / 300) + 1 + 0.1 * noise)) == []


def test_a_loss_that_stays_high_becomes_usual() -> None:
    found = spikes([1.0] * 100 + [3.0] * 100)
    assert found == list(range(100, 100 + WINDOW // 2))


def test_the_losses_of_a_spike_do_not_hide_the_next_one() -> None:
    losses = [1.0 + 0.01 * (step % 5) for step in range(100)]
    losses[60:65] = [1e6] * 5
    losses[70] = 2.0
    assert spikes(losses) == [60, 61, 62, 63, 64, 70]


def digests(nan: Sequence[int] = ()) -> list[bytes]:
    """The records of TABLE, then of both gradients; those at the places `nan` contain a NaN."""
    finite, bad = (pack(Digest(1, 2, count, 0, 0.0, 1.0, 0.5, 1.0)) for count in (0, 1))
    return [bad if place in nan else finite for place in range(5)]


class Training:
    """Steps whose losses and digests are given, held and written as a run does it."""

    def __init__(self, folder: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.path = folder / "digests.bin"
        self.held = HeldSteps(FrameFile(self.path), lambda event, **fields: self.events.append(fields))
        self.step = 0

    def train(self, *losses: float | str, nan: Sequence[int] = (), written: bool = False) -> Training:
        for loss in losses:
            self.held.judge(self.step, [loss])
            self.held.hold(DigestedStep(TABLE, self.step, digests(nan)), is_written=written)
            self.held.settle(self.step)
            self.step += 1
        return self

    @property
    def written(self) -> list[int]:
        return [frame.step for frame in scan_frames(self.path)]


def test_the_steps_before_and_after_a_spike_are_written(tmp_path: Path) -> None:
    training = Training(tmp_path).train(*[1.0] * 40)
    assert training.written == []
    training.train(9.0, *[1.0] * 30)
    assert training.written == list(range(40 - HELD, 40 + HELD + 1))
    (spike,) = training.events
    assert (spike["step"], spike["reason"], spike["loss"], spike["median"]) == (40, "spike", 9.0, 1.0)
    assert (spike["first"], spike["last"]) == (40 - HELD, 40 + HELD)


def test_a_step_that_is_on_disk_is_not_written_again(tmp_path: Path) -> None:
    training = Training(tmp_path).train(*[1.0] * 35).train(1.0, written=True).train(*[1.0] * 4, 9.0)
    assert training.written == [step for step in range(40 - HELD, 41) if step != 35]


def test_spikes_in_a_row_are_one_and_later_ones_their_own(tmp_path: Path) -> None:
    training = Training(tmp_path).train(*[1.0] * 40, 9.0, 1.0, 9.0, *[1.0] * 20, 9.0)
    assert [spike["step"] for spike in training.events] == [40, 63]
    assert len(training.written) == len(set(training.written))


def test_the_first_nan_is_named_with_its_step_and_its_tensor(tmp_path: Path) -> None:
    # given NaN in the gradients of a step, which reach the loss in the next one
    training = Training(tmp_path).train(*[1.0] * 20).train(1.0, nan=(3, 4)).train("nan", "nan", nan=(0, 2, 3, 4))
    # then the last gradient in the model's order is named, since the backward computes it first
    (spike,) = training.events
    assert (spike["step"], spike["reason"]) == (21, "nonfinite")
    assert (spike["what"], spike["tensor"], spike["since"]) == ("gradient", "last.weight", 20)
    assert training.written[-3:] == [20, 21, 22]


def test_a_parameter_that_is_not_finite_is_found_before_the_loss_is(tmp_path: Path) -> None:
    training = Training(tmp_path).train(*[1.0] * 5).train(1.0, nan=(0,)).train("nan", nan=(0,))
    (spike,) = training.events
    assert (spike["step"], spike["what"], spike["tensor"]) == (5, "value", "first.weight")


@pytest.mark.parametrize("place", [1, 3])
def test_a_mask_and_an_overflow_that_a_scaler_skips_are_no_spikes(place: int, tmp_path: Path) -> None:
    training = Training(tmp_path).train(*[1.0] * 20).train(1.0, nan=(place,)).train(*[1.0] * 20)
    assert training.events == [] and training.written == []


def test_a_training_that_is_finite_again_may_lose_its_numbers_again(tmp_path: Path) -> None:
    training = Training(tmp_path).train("inf", *[1.0] * 30, "nan", *["nan"] * 30)
    assert [(spike["step"], spike["loss"]) for spike in training.events] == [(0, "inf"), (31, "nan")]


def test_optimizers_that_take_turns_have_losses_of_their_own(tmp_path: Path) -> None:
    training = Training(tmp_path)
    for step in range(100):
        assert not training.held.judge(step, [1.0 if step % 2 else 50.0], step % 2)
    assert training.held.judge(100, [900.0], 0)


def test_a_failure_writes_the_last_steps(tmp_path: Path) -> None:
    training = Training(tmp_path).train(*[1.0] * 30)
    training.held.script_ended("RuntimeError: boom")
    assert training.written == list(range(30 - HELD - 1, 30))
    assert training.events[0]["reason"] == "failure" and training.events[0]["text"] == "RuntimeError: boom"


def test_absent_gradients_are_finite() -> None:
    payload = [*digests()[:3], ABSENT, ABSENT]
    assert DigestedStep(TABLE, 0, payload).nonfinite() is None


def test_the_median_of_an_even_number_of_losses_is_between_them() -> None:
    rule = SpikeRule()
    for loss in range(LEAST):
        assert rule.exceeded(float(loss)) is None
    usual = rule.exceeded(1e9)
    assert usual is not None and usual.median == statistics.median(range(LEAST)) and usual.limit < 1e9
