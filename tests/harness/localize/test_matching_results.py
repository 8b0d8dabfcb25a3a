"""The results of a block in the order in which the values of both sides match."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.execute.tape_pair import TapePair, paired
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.tape import Tape


def step_of(lstm: nn.LSTM, x: Tensor, *, by_library: bool, scale: float = 1.0) -> Tape:
    """Record a step with an LSTM whose last states are read, by oneDNN or by its decomposition."""
    recorder = TapeRecorder(0, "train.py", modules=False)
    with torch.backends.mkldnn.flags(enabled=by_library):
        recorder.start()
        output, (hidden, cell) = lstm(x)
        recorder.watch("loss 0", (output * scale).sum() + (hidden * 2).sum() + (cell * 3).sum())
        recorder.stop()
    return recorder.tape()


@pytest.fixture
def pair() -> TapePair:
    torch.manual_seed(0)
    lstm, x = nn.LSTM(4, 5), torch.randn(6, 3, 4)
    return paired(flow_of(step_of(lstm, x, by_library=True)), flow_of(step_of(lstm, x, by_library=False)))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_the_last_states_of_a_layer_are_those_of_its_decomposition(pair: TapePair) -> None:
    found = examine(pair, suspects(pair))
    [block] = [test for test in found.values() if "mkldnn_rnn_layer" in pair.all_names(test.suspect.block)]
    # in roundings of float32; hidden and cell states exchanged differ by more than their size
    assert block.differs and block.roundings < 64 and block.largest < 1e-5
    assert block.errors is not None and max(error.rho for error in block.errors.values()) < 4
