"""A snapshot's calls as a graph give what the calls give one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numdrift.harness.backends.replaying.snapshot_replay import mode_of, replayed
from numdrift.harness.snapshots.snapshot_graph import graph_of
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.tape import NotReplayable
from numdrift.harness.tools.snapshots.replay_answer import answer_of, compared

from ..backends.lazy_transposes import TransposesCopied
from ..tape.trainings import TRAININGS
from .samples import snapshot_of, written

IN_GRAD_MODE_ONLY = ("lstm",)
"""oneDNN's LSTM keeps what its backward needs in grad mode alone, and backends execute graphs without it."""


@pytest.mark.parametrize("name", [name for name in TRAININGS if name not in IN_GRAD_MODE_ONLY])
def test_the_graph_gives_what_the_calls_give(name: str) -> None:
    snapshot = snapshot_of(name)
    graph = graph_of(snapshot, keep_draws=False)
    with torch.no_grad():
        outputs = graph.module(*graph.inputs())
        again = graph.module(*graph.inputs())
    given = snapshot.output_values()
    assert len(outputs) == len(given)
    for recorded, output, other in zip(given, outputs, again, strict=True):
        assert recorded is not None and is_same(recorded, output) and is_same(recorded, other)


def test_a_graph_that_writes_in_the_middle_is_not_functional() -> None:
    assert not graph_of(snapshot_of("mlp"), keep_draws=False).is_functional


@pytest.mark.slow
def test_in_lazy_mode_the_step_is_the_same(tmp_path: Path) -> None:
    # given what the step gives where transposed weights are copied, as lazy mode has them
    snapshot, path = snapshot_of("sam"), written(tmp_path, "sam")
    graph = graph_of(snapshot, keep_draws=False)
    with torch.no_grad(), TransposesCopied():
        expected = graph.module(*graph.inputs())
    # when, then it has those bits, on each machine
    outcome = replayed(snapshot, path, mode_of(snapshot, path, "lazy"))
    assert all(map(is_same, expected, outcome.values)) and len(expected) == len(outcome.values)
    # and the answer is that of these bits: identical where copies have the bits of views, else within rounding
    answer = answer_of(path, "lazy")
    assert answer.comparison == compared(snapshot, expected)
    assert answer.holds, answer.text


def test_what_no_call_gave_is_refused() -> None:
    snapshot = snapshot_of("sam")
    slot = next(iter(snapshot.tape.inputs))
    inputs = {number: data for number, data in snapshot.tape.inputs.items() if number != slot}
    tape = type(snapshot.tape)(3, snapshot.tape.slots, inputs, snapshot.tape.calls, snapshot.tape.watched)
    with pytest.raises(NotReplayable, match="no recorded call returned"):
        graph_of(snapshot_of("sam", tape=tape), keep_draws=False)
