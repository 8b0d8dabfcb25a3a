"""`numdrift partition`: modules and scripts in parts, and what goes wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from numdrift.harness.cli.program import program
from numdrift.harness.errors import NumdriftError, UsageError

from ..conftest import Numdrift

MODULES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.leave = nn.Linear(16, 4)

    def forward(self, x):
        return self.leave(torch.tanh(self.norm(self.enter(x))))


class Failing(Net):
    def forward(self, x):
        raise ValueError("this module does not work")


def example_inputs():
    return torch.rand(6, 8)
"""

TRAINING = (
    MODULES
    + """

if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(9):
        optimizer.zero_grad()
        model(torch.rand(6, 8)).square().mean().backward()
        optimizer.step()
"""
)


WITHIN_ROUNDING = 1e-5
"""Far above the last bits that another path of a library changes in these few operators, far below any fault."""


def lazy_has_eagers_bits() -> bool:
    """Whether products of this size have the same bits with a transposed weight, as eagerly, and with a copy of it that
    lies row by row, as in lazy mode. On some processors the library takes another path for the copy."""
    torch.manual_seed(0)
    drawn = [
        (torch.rand(6, inner), torch.rand(outer, inner) - 0.5, torch.rand(outer))
        for inner, outer in ((8, 16), (16, 4))
        for _ in range(200)
    ]
    return all(
        torch.equal(torch.addmm(bias, x, weight.t()), torch.addmm(bias, x, weight.t().contiguous()))
        for x, weight, bias in drawn
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "net.py"
    file.write_text(TRAINING)
    return file


@pytest.mark.slow
def test_a_training_whose_batch_norm_is_on_the_cpu_is_the_training(numdrift: Numdrift, written: Path) -> None:
    # when
    done = numdrift("partition", written, "--mode", "lazy", "--check", "--max-steps", "3", "--json", "found.json")
    assert done.returncode == 0, done.stderr
    # then the lazy core's fallback is on the CPU, with its line
    found = json.loads((written.parent / "found.json").read_text())
    forward, backward = found["graphs"]
    assert [one["device"] for one in forward["subgraphs"]] == [
        *("lazy (TorchScript)", "CPU", "lazy (TorchScript)"),
    ]
    [unsupported] = [row for row in forward["operators"] if not row["supported"]]
    assert unsupported["kind"] == "aten::batch_norm" and unsupported["call"] == "net.py:14"
    assert unsupported["reason"] == "aten::_native_batch_norm_legit fell back to the CPU"
    assert (forward["supported"], forward["total"], forward["percentage"]) == (4, 5, 80.0)
    assert backward["phase"] == "backward" and not backward["violated"]
    # and losses, parameters and buffers are those of the training as it is
    assert found["steps"] == 3
    if lazy_has_eagers_bits():
        assert found["comparison"]["identical"]
        assert "Identical to the unpartitioned run on the CPU, in all 3 steps." in done.stdout
    else:
        assert (found["comparison"]["losses"]["max_relative"] or 0.0) < WITHIN_ROUNDING
    assert "80.00% of operators (4 of 5) are supported by lazy (TorchScript)" in done.stdout


@pytest.mark.slow
def test_a_module_is_held_against_itself_and_a_limit_is_one_line(numdrift: Numdrift, written: Path) -> None:
    # when
    done = numdrift("partition", "net.py:Net", "--mode", "lazy", "--json", "-")
    # then
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["what"] for one in found["checks"]] == ["output"] + 6 * ["gradient"]
    if lazy_has_eagers_bits():
        assert all(one["identical"] for one in found["checks"])
    else:
        assert all(one["largest"] <= WITHIN_ROUNDING * one["scale"] for one in found["checks"])
    # and of a training it ends the script before its first step
    limited = numdrift("partition", written, "--mode", "lazy", "--max-subgraph-count", "2")
    assert limited.returncode == 2
    assert limited.stderr.splitlines()[-1] == (
        "numdrift: The partitioner has found 3 subgraphs which exceeds the specified max subgraph count of 2."
    )
    assert "aten::batch_norm" in limited.stdout and "Traceback" not in limited.stderr


@pytest.mark.slow
def test_a_module_that_fails_is_one_line(numdrift: Numdrift, written: Path) -> None:
    done = numdrift("partition", "net.py:Failing", "--mode", "cpu")
    assert done.returncode == 3
    assert "ValueError: this module does not work; its error output is in runs/" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("trainings_are_forked")
@pytest.mark.parametrize("target", ["net.py", "net.py:Net"])
@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        ("mps", 3, "device 'mps' is not available"),
        ("compile,backend=inductr", 2, "did you mean 'inductor'"),
        ("gpu", 2, "there is no mode 'gpu'"),
    ],
)
def test_a_backend_that_is_not_here_is_no_operator_that_it_lacks(
    target: str, mode: str, code: int, said: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written.parent)
    done = CliRunner().invoke(program, ["partition", target, "--mode", mode])
    assert isinstance(done.exception, NumdriftError) and said in str(done.exception)
    assert done.exception.exit_code == code
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["net.py:Net", "--check"], "net.py:Net is a module"),
        (["train.py", "--inference"], "--inference needs a module"),
        (["train.py", "--bisect"], "--bisect needs a module"),
        (["net.py:Net", "--max-subgraph-count", "0"], "max_subgraph_count must be at least 1"),
        (["net.py:Net", "--mode", "compile,kernel.tanh=fma"], "a partition cannot swap kernels"),
        (["train.py"], "there is no script train.py"),
        ([], "no script is given"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(program, ["partition", *arguments])
    assert isinstance(done.exception, UsageError) and said in str(done.exception)
    assert not Path("runs").exists()
