"""Steps of lazy tensors as the core has executed them: every op of its graphs, and that it gives the core's own bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Numdrift

from numdrift.harness.tape.files.tape_file import read_tape
from numdrift.harness.tape.tape import Tape

SCRIPT = """
import os, torch
from torch import nn

torch.manual_seed(0)
device = os.environ["DEVICE"]
net = nn.Sequential(nn.Linear(6, 8), {layer}, nn.Tanh(), nn.Linear(8, 3)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(16, 6).to(device), torch.randn(16, 3).to(device)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()  # which falls back to the CPU
    optimizer.step()
"""


def executed(numdrift: Numdrift, folder: Path, layer: str) -> tuple[Tape, dict[str, object]]:
    """The tape of a step, and the pair's findings."""
    (folder / "train.py").write_text(SCRIPT.format(layer=layer))
    asked = ("--modes", "cpu,lazy", "--name", "l", "--no-scripts", "--no-confirm")
    done = numdrift("investigate", folder / "train.py", *asked)
    found = json.loads((folder / "runs" / "l" / "investigation.json").read_text())["pairs"][0]
    (run,) = (folder / "runs" / "l" / "evidence").glob("lazy-executed-cpu-*")
    tapes = sorted(run.glob("tapes/tape-*"))
    noise = sorted(run.glob("tapes/noise-*"))
    assert tapes, (done.stderr, [one.read_text() for one in noise])
    # executed anew it gives its own bits, and who records it has changed none
    assert [json.loads(one.read_text())["equal"] for one in noise] == [True]
    (forced,) = (folder / "runs" / "l" / "evidence").glob("lazy-from-cpu")
    (outcome,) = run.glob("outcomes/*")
    assert outcome.read_bytes() == (forced / "outcomes" / outcome.name).read_bytes()
    return read_tape(tapes[0]), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "op", "times"),
    [
        ("nn.BatchNorm1d(8)", "native_batch_norm", 2),
        pytest.param("nn.Dropout(0.4)", "native_dropout", 2, marks=pytest.mark.exhaustive),
    ],
)
def test_what_is_executed_again_is_on_the_tape_and_is_the_culprit(
    layer: str, op: str, times: int, numdrift: Numdrift, tmp_path: Path
) -> None:
    tape, found = executed(numdrift, tmp_path, layer)

    # then the op is there twice, the second time as what repeats the first
    calls = [(number, call) for number, call in enumerate(tape.calls) if call.name == op]
    (first, _), *again = calls
    assert len(calls) == times and all(call.repeats == first for _, call in again)
    assert {call.module for _, call in calls} == {"1"} and {call.iteration for _, call in calls} == {0}
    # and copies stand where eager mode has views, with the module and line of the op that they are a part of
    copies = [call for call in tape.calls if call.name == "t_copy" and call.phase == "forward"]
    assert {call.module for call in copies} == {"0", "3"}
    assert all(str(call.line).endswith("train.py:12") for call in copies)
    # and an op that fell back to the CPU is among them
    assert "mse_loss" in [call.name for call in tape.calls]

    # and it is the culprit
    assert found["verdict"] == "beyond-rounding"
    culprit = found["culprits"][0]  # type: ignore[index]
    assert culprit["op"] == f"aten.{op}" and culprit["module"] == "1" and culprit["status"] == "culprit"
    assert any(one.startswith("executed again, 2 times in all") for one in culprit["reasons"])
    assert not any(one["kind"] == "mark-step" for one in found["culprits"])  # type: ignore[attr-defined]


SHUFFLED = """
import os, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        shift = torch.empty(4, 1, 1, device=x.device).fill_(0.5)  # without values, but filled
        return torch.pixel_shuffle(self.second(torch.relu(self.first(x) + shift)), 2)

torch.manual_seed(0)
net = Net().to(os.environ["DEVICE"])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    x, y = torch.randn(2, 1, 5, 5).to(os.environ["DEVICE"]), torch.randn(2, 1, 10, 10).to(os.environ["DEVICE"])
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("alike", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_an_op_that_gives_memory_without_values_is_named(
    alike: bool, numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of torch 2.13 `pixel_shuffle` of lazy tensors gives what lay in the memory that it has made (issue 21)."""
    if alike:  # the C library fills with this byte what it gives
        monkeypatch.setenv("MALLOC_PERTURB_", "85")
    (tmp_path / "train.py").write_text(SHUFFLED)
    numdrift("investigate", tmp_path / "train.py", "--modes", "cpu,lazy", "--name", "l", "--no-confirm")
    [pair] = json.loads((tmp_path / "runs" / "l" / "investigation.json").read_text())["pairs"]
    # what lies there is mostly another thing in each run, but need not be
    assert pair["verdict"] in ("beyond-rounding", *(() if alike else ("nondeterministic",))), pair
    [culprit] = [one for one in pair["culprits"] if one["kind"] == "nondeterminism"]
    assert (culprit["op"], culprit["what"], culprit["status"]) == ("aten.pixel_shuffle", "unfilled", "culprit")
    assert culprit["source"].endswith("train.py:12") and culprit["step"] == 0 and culprit["phase"] == "forward"
    assert any("no op has filled" in one for one in pair["text"])
