from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from numdrift.harness.tape.files.tape_file import read_tape, write_tape
from numdrift.harness.tape.replaying.ensemble import measure_noise, measure_settled
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.replaying.settling import settle
from numdrift.harness.tape.tape import NotReplayable, Tape

from .adding_anywhere import X, step_of, summed, summed_in_place


def wide(x: Tensor) -> Tensor:
    """A loss of many values, of which some differ whenever the sums do."""
    total: Tensor = torch.ops.adding.anywhere(x)
    return total


STEPS = {"out of place": summed, "in place": summed_in_place, "wide": wide}


def loss_of(tape: Tape) -> Tensor:
    return Replay(tape).run(AsRecorded())["loss 0"]


@pytest.mark.parametrize("work", STEPS.values(), ids=list(STEPS))
def test_a_settled_step_replays_to_the_same_bits_each_time(work: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    tape = step_of(work)
    # given an op that adds in another order each time, which a wide result shows in nearly every replay
    assert work is not wide or len({tuple(loss_of(tape).tolist()) for _ in range(8)}) > 1
    # when
    settled = settle(tape)
    # then
    assert settled is not None
    (call,) = settled.calls
    assert call.op.startswith("adding.anywhere") and 0 < call.spread < 64
    write_tape(tmp_path / "tape-000000.safetensors", settled.tape)
    for again in (settled.tape, read_tape(tmp_path / "tape-000000.safetensors")):
        assert all(is_same(loss_of(again), again.expected()["loss 0"]) for _ in range(8))
    # what it replays to is an outcome that the step may have: as near to the sum in double as float32 is
    exact = work(X.double())
    assert torch.allclose(settled.tape.expected()["loss 0"].double(), exact, rtol=1e-5)


def test_a_step_whose_calls_repeat_needs_no_settling() -> None:
    tape = step_of(lambda x: x.tanh().sum())
    assert settle(tape) is None
    noise, same = measure_settled(tape, 2)
    assert same is tape and noise.equal and not noise.unrepeatable


def test_the_noise_of_a_settled_step_has_its_spread() -> None:
    noise, tape = measure_settled(step_of(wide), 4)
    assert noise.equal and noise.replays == 4 and tape.expected()["loss 0"].numel() == 16
    assert [call.op for call in noise.unrepeatable] == ["adding.anywhere.default"]
    # of one rounding or a few, as an order of additions makes it
    measured = noise.tensors["loss 0"]
    assert 0 < measured.spread < 100 * 2.0**-24 * measured.norm
    assert measure_noise(tape, 0).equal


def test_what_these_calls_do_not_explain_is_not_settled() -> None:
    tape = step_of(wide)
    (watched,) = tape.watched
    far = replace(tape, watched=(replace(watched, value=watched.value * 1.001),))
    with pytest.raises(NotReplayable, match="the distance of loss 0 from the replays"):
        settle(far)
    noise, same = measure_settled(far, 2)
    assert same is far and not noise.equal and noise.reason is not None and "do not explain" in noise.reason


def test_a_step_that_does_not_replay_though_its_calls_repeat_is_not_settled() -> None:
    tape = step_of(lambda x: x.tanh().sum())
    (watched,) = tape.watched
    other = replace(tape, watched=(replace(watched, value=watched.value + 1.0),))
    with pytest.raises(NotReplayable, match="each call of the step repeats"):
        settle(other)
