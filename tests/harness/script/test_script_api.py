"""What a script says of itself: compared with what it prints, with and without a recording."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...processes.forked import python
from ..recorder.trainings import Ran, run

TRAINING = """
import sys
import torch, numdrift
from torch import nn

device = numdrift.device()
if device.type == "lazy":
    import torch._lazy, torch._lazy.ts_backend
    torch._lazy.ts_backend.init()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).to(device)
first = torch.optim.SGD(model[0].parameters(), lr=0.1)
second = torch.optim.SGD(model[2].parameters(), lr=0.1)
x, y = torch.randn(8, 4).to(device), torch.randn(8, 1).to(device)

def forward():
    return (model(x) - y).square().mean()

def update():
    for optimizer in (first, second):
        optimizer.step()
        optimizer.zero_grad()

def say(*values):
    print(*(float(value).hex() for value in values))
"""

LOOPS = {
    "late": """
for i in range(4):
    loss = forward()
    loss.backward()
    first.step(); first.zero_grad(); second.zero_grad()
    if device.type == "lazy":
        torch._lazy.mark_step()
    numdrift.log(loss=loss * 3, twice=loss * 2)
    say(loss * 3, loss * 2)
""",
    "early": """
for i in range(4):
    loss = forward()
    numdrift.log(loss=loss * 3, twice=loss * 2, i=7)
    numdrift.log(i=i)
    loss.backward()
    first.step(); first.zero_grad(); second.zero_grad()
    if device.type == "lazy":
        torch._lazy.mark_step()
    say(loss * 3, loss * 2)
""",
    "changed": """
total = torch.zeros((), device=device)
for i in range(4):
    loss = forward()
    total += loss.detach()
    numdrift.log(loss=loss * 3, twice=total)
    say(loss * 3, total)
    total *= 0  # what was logged is what it was then
    loss.backward()
    first.step(); first.zero_grad(); second.zero_grad()
""",
    "steps": """
assert len(numdrift.steps(range(4))) == 4
for i in numdrift.steps(range(4)):
    loss = forward()
    loss.backward()
    update()
    numdrift.log(loss=loss * 3, twice=loss * 2)
    say(loss * 3, loss * 2)
""",
    "step": """
numdrift.step()
for i in range(4):
    loss = forward()
    loss.backward()
    update()
    numdrift.log(loss=loss * 3, twice=loss * 2)
    say(loss * 3, loss * 2)
    numdrift.step()
""",
    "first step is an optimizer's": """
for i in range(4):
    loss = forward()
    loss.backward()
    first.step(); first.zero_grad(); second.zero_grad()
    numdrift.log(loss=loss * 3, twice=loss * 2)
    say(loss * 3, loss * 2)
    numdrift.step()
""",
    "in a compiled function": """
@torch.compile(backend="eager")
def compiled():
    loss = forward()
    numdrift.log(loss=loss * 3, twice=loss * 2)
    return loss + 0

for i in range(4):
    loss = compiled()
    loss.backward()
    first.step(); first.zero_grad(); second.zero_grad()
    say(loss * 3, loss * 2)
""",
    "functions alone": """
weight = torch.ones(4, 1, device=device)
for i in range(4):
    with torch.no_grad():
        loss = (x @ weight - y).square().mean()
        weight -= 0.1 * x.T @ (x @ weight - y) / 4
    numdrift.log(loss=loss * 3, twice=loss * 2)
    numdrift.step()
    say(loss * 3, loss * 2)
""",
}


def plain(script: Path, device: str = "cpu") -> str:
    """What the script prints in plain Python."""
    done = python(script.parent, script, DEVICE=device, PYTHONHASHSEED="0")
    done.check_returncode()
    return done.stdout


def recorded(tmp_path: Path, loop: str, mode: str = "cpu", **options: Any) -> tuple[Ran, Path]:
    script = tmp_path / "train.py"
    script.write_text(TRAINING + loop)
    return run(script, tmp_path / "run", mode, **options), script


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_logged_belongs_to_its_step(loop: str, tmp_path: Path) -> None:
    # given
    ran, script = recorded(tmp_path, LOOPS[loop])
    # when
    told = plain(script)
    # then the training is the same, and the journal has what the script printed, step by step
    assert ran.exit_code == 0, (tmp_path / "run/stderr.log").read_text()
    assert ran.printed == told
    printed = [tuple(float.fromhex(word) for word in line.split()) for line in told.splitlines()]
    steps = ran.journal.steps
    assert [one.step for one in steps] == [0, 1, 2, 3]
    assert [(one.loss, one.logged["twice"]) for one in steps] == printed
    if loop == "early":
        assert [one.logged["i"] for one in steps] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["early", "late"])
def test_logging_changes_no_bit_of_lazy_mode(loop: str, tmp_path: Path) -> None:
    ran, script = recorded(tmp_path, LOOPS[loop], "lazy,mark_step=auto")
    told = plain(script, "lazy")
    assert ran.printed == told
    printed = [tuple(float.fromhex(word) for word in line.split()) for line in told.splitlines()]
    assert [(one.loss, one.logged["twice"]) for one in ran.journal.steps] == printed


@pytest.mark.slow
def test_a_late_loss_is_seen_with_the_losses_alone_recorded(tmp_path: Path) -> None:
    ran, script = recorded(tmp_path, LOOPS["early"], record="losses")
    printed = [float.fromhex(line.split()[0]) for line in plain(script).splitlines()]
    assert [one.loss for one in ran.journal.steps] == printed


@pytest.mark.slow
def test_ops_are_filed_under_the_named_phase(tmp_path: Path) -> None:
    # given a step with one op in a phase of its own, and a backward that the script calls otherwise
    loop = """
for i in range(2):
    with numdrift.phase("data"):
        x.mul_(1.5)
    loss = forward()
    with numdrift.phase("loss"):
        with numdrift.phase("inner"):
            loss = loss.exp()
        loss.backward()
    update()
"""
    # when
    ran, _ = recorded(tmp_path, loop, record="ops")
    # then
    lines = (tmp_path / "run/journal/ops.jsonl").read_text().splitlines()
    found = {(line.split('"op":"')[1].split('"')[0], line.split('"phase":"')[1].split('"')[0]) for line in lines}
    assert ran.exit_code == 0
    assert {phase for op, phase in found if op == "aten.exp.default"} == {"inner"}
    assert {phase for op, phase in found if op == "aten.tanh_backward.default"} == {"loss"}
    assert {phase for op, phase in found if op == "aten.addmm.default"} == {"forward"}
    assert ("aten.mul_.Tensor", "data") in found


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["auto", "step"], ids=["auto", "step"])
def test_a_graph_is_cut_where_the_script_says_it_if_the_policy_has_it_so(policy: str, tmp_path: Path) -> None:
    # given a lazy training that asks whether a value is there right after `mark_step`
    loop = """
for i in range(2):
    z = x * 2 + 1
    numdrift.mark_step()
    print("aten::mul" in torch._C._lazy._get_tensors_text([z]))
    loss = (model(z) - y).square().mean()
    loss.backward()
    update()
"""
    ran, _ = recorded(tmp_path, loop, f"lazy,mark_step={policy}")
    # then it has been executed where the script's places count, and is pending where they do not
    assert ran.printed.splitlines() == [str(policy == "step")] * 2


@pytest.mark.slow
def test_what_is_no_number_is_a_doubt_and_harms_nothing(tmp_path: Path) -> None:
    ran, _ = recorded(tmp_path, LOOPS["early"].replace("i=7", "i=x, name='text'"))
    assert ran.exit_code == 0
    doubts = [event["text"] for event in ran.journal.events("doubt")]
    assert sum("numdrift.log: i is not a single number" in text for text in doubts) == 1
    assert sum("numdrift.log: name is not a single number" in text for text in doubts) == 1
    assert [one.logged["i"] for one in ran.journal.steps] == [0.0, 1.0, 2.0, 3.0]


def test_without_a_recording_nothing_happens_and_no_torch_is_loaded() -> None:
    code = """
import sys, numdrift
numdrift.log(loss=object(), other=1)
numdrift.step()
numdrift.mark_step()
with numdrift.phase("data"):
    items = list(numdrift.steps([1, 2]))
assert items == [1, 2] and "torch" not in sys.modules
import os
os.environ["DEVICE"] = "meta"
assert str(numdrift.device()) == "meta"
del os.environ["DEVICE"]
assert str(numdrift.device()) == "cpu"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
