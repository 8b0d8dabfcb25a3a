"""Graphs from the command line: captured by `run --graphs`, listed, exported, compared."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from numdrift.harness.graphs.run_graphs import RunGraphs, graphs_of
from numdrift.harness.runs.recorded_run import load_run

from ..conftest import ROOT, Numdrift
from ..processes.forked import numdrift_in, python

SAM_TANH = ROOT / "reproducers" / "sam_tanh.py"
DEEP = ROOT / "tests" / "e2e" / "scripts" / "deep_transformer.py"
LARGEST = 50 * 10**6
"""Bytes of the exported files of one run."""


def run_of(tmp_path: Path, mode: str, name: str = "g") -> RunGraphs:
    return graphs_of(load_run(tmp_path / "runs" / name / mode))


def record(numdrift: Numdrift, script: Path, *modes: str, arguments: tuple[str, ...] = ()) -> None:
    asked = [part for mode in modes for part in ("--mode", mode)]
    done = numdrift("run", script, *asked, "--graphs", "--in-place", "--name", "g", "--", *arguments, timeout=600)
    assert done.returncode == 0, done.stderr


def difference(numdrift: Numdrift, *runs: str) -> dict[str, Any]:
    done = numdrift("graph", "diff", *runs, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["pairs"][0]
    return found


@pytest.mark.slow
def test_the_founding_look(numdrift: Numdrift, tmp_path: Path) -> None:
    # given
    record(numdrift, SAM_TANH, "cpu", "compile", "lazy", arguments=("--epochs", "2"))
    # when
    told = numdrift("graph", "diff", "runs/g/lazy", "runs/g/compile", "--json", "diff.json")
    (found,) = json.loads((tmp_path / "diff.json").read_text())["pairs"]
    # then
    first = told.stdout.splitlines()[0]
    assert first == (
        "lazy keeps tanh_backward whole (4 times in the backward), and compile decomposes it into mul, sub, mul."
    )
    assert found["answers"][0] == first
    groups = [pair for pair in found["pairs"] if pair["kind"] == "group" and "tanh" in pair["what"]]
    sizes = Counter((len(pair["a"]), len(pair["b"])) for pair in groups)
    assert set(sizes) == {(1, 3)}
    # and every stage of every mode is there, as a file that ONNX takes
    for mode, stages in {
        "cpu": {"pre"},
        "compile": {"dynamo", "pre", "post", "stream"},
        "lazy": {"pre", "post"},
    }.items():
        graphs = run_of(tmp_path, mode)
        assert {entry.stage for entry in graphs.entries} == stages
        assert {phase for entry in graphs.entries for phase in entry.phase.split("+")} == {
            "forward", "backward", "optimizer",
        }  # fmt: skip
        for entry in graphs.entries:
            model = onnx.load(graphs.path / f"{entry.name}.onnx")
            assert len(model.graph.node) >= entry.nodes
            record_of = graphs.graph(entry.name)
            if all(value.shape is not None and value.dtype for value in record_of.values.values()):
                onnx.checker.check_model(model)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "graphs"), [("auto", 4), ("phase", 4), ("step", 1)])
def test_mark_step_changes_the_number_of_graphs(policy: str, graphs: int, numdrift: Numdrift, tmp_path: Path) -> None:
    record(numdrift, SAM_TANH, f"lazy,mark_step={policy}", arguments=("--epochs", "2"))
    executions = [one for one in run_of(tmp_path, "lazy").executions if one.step == 0]
    assert len(executions) == graphs
    assert all(one.cut is not None and one.cut["reason"] == "mark_step" for one in executions)


FOUNDING = """
import os, torch
from torch import nn
torch.manual_seed(0)
device = os.environ.get("DEVICE", "cpu")
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(4, 8).to(device), torch.randn(4, 1).to(device)
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    print(loss.item())
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_without_mark_steps_there_is_one_forward_and_one_backward(numdrift: Numdrift, tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(FOUNDING)
    # when
    record(numdrift, script, "cpu", "lazy,mark_step=off")
    # then
    graphs = run_of(tmp_path, "lazy")
    first = [graphs.graph(f"{one.graph}-pre") for one in graphs.executions if one.step == 0]
    computed = [Counter((node.phase, node.op) for node in graph.nodes) for graph in first]
    assert [one["forward", "addmm"] for one in computed] == [2, 2]  # the backward computes its forward again
    assert [one["backward", "tanh_backward"] for one in computed] == [0, 1]
    assert first[0].cut is not None
    assert (first[0].cut.reason, first[0].cut.source) == ("item", f"{script}:12")
    # and what was recorded are each step's own values
    cpu, lazy = (run_of(tmp_path, mode).run.journal for mode in ("cpu", "lazy"))
    for step in range(3):
        expected, found = cpu.values(step), lazy.values(step)
        assert all(np.allclose(found[name], expected[name], rtol=1e-5, atol=1e-7) for name in expected)
    assert not np.array_equal(lazy.values(0)["0.weight"], lazy.values(2)["0.weight"])


def test_the_variable_of_the_founding_scripts_records_graphs(tmp_path: Path, tiny: Path) -> None:
    done = numdrift_in(tmp_path, "run", tiny, "--mode", "cpu", "--name", "g", GRAPH_VISUALIZATION="1")
    assert done.returncode == 0, done.stderr
    assert [entry.stage for entry in run_of(tmp_path, "cpu").entries][:1] == ["pre"]


def test_graphs_of_a_run_that_recorded_none(numdrift: Numdrift, tiny: Path) -> None:
    numdrift("run", tiny, "--mode", "cpu", "--name", "g")
    for command in (["list", "runs/g/cpu"], ["open", "runs/g/cpu"], ["diff", "runs/g/cpu", "runs/g/cpu"]):
        done = numdrift("graph", *command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--graphs" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_wrong_selections_name_what_there_is(numdrift: Numdrift, tiny: Path) -> None:
    numdrift("run", tiny, "--mode", "cpu", "--graphs", "--name", "g")
    for wrong, said in (
        (["open", "runs/g/cpu", "--phase", "backwards"], "backward"),
        (["open", "runs/g", "--mode", "lasy"], "cpu"),
        (["open", "runs/g/cpu", "--post"], "pre"),
        (["diff", "runs/g/cpu", "runs/g/nothing"], "nothing"),
        (["open", "runs/g/cpu", "--step", "77"], "0"),
    ):
        done = numdrift("graph", *wrong)
        assert done.returncode == 2, wrong
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


UNCAPTURED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = self.first(x)
        print("a graph break")
        if h.sum().item() > 1e9:
            h = h + 1
        return self.last(h)

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_graph_breaks_are_listed(numdrift: Numdrift, tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(UNCAPTURED)
    # when
    record(numdrift, script, "compile")
    # then
    graphs = run_of(tmp_path, "compile")
    dynamo = [entry for entry in graphs.entries if entry.stage == "dynamo"]
    assert len(dynamo) > 1
    listed = numdrift("graph", "list", "runs/g/compile").stdout
    assert "graph break" in listed
    assert "train.py:" in listed


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_deep_transformer_is_captured_exported_and_compared(numdrift: Numdrift, tmp_path: Path) -> None:
    # given about 3,000 nodes in forward and backward
    record(numdrift, DEEP, "compile", "lazy")
    # when
    started = time.perf_counter()
    found = difference(numdrift, "runs/g/lazy", "runs/g/compile")
    page = numdrift("graph", "diff", "runs/g/lazy", "runs/g/compile", "--html", "diff.html")
    seconds = time.perf_counter() - started
    # then
    assert page.returncode == 0, page.stderr
    assert seconds < 120, f"two comparisons took {seconds:.0f} s"
    assert (found["a"]["nodes"], found["b"]["nodes"]) > (2000, 2000)
    for mode in ("compile", "lazy"):
        files = list(run_of(tmp_path, mode).path.iterdir())
        assert sum(file.stat().st_size for file in files) < LARGEST
    paired = sum(1 for pair in found["pairs"] if pair["a"] and pair["b"])
    assert paired > 1000


COMPILING = """
import sys, torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
if how == "plain":
    called = model
elif how == "wrapped":
    called = torch.compile(model)
elif how == "in-place":
    class Model(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
        def forward(self, x):
            return self.inner(x)
    called = model = Model(model)
    model.compile()
else:
    called = torch.compile(lambda x: model(x))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(4, 8)
for _ in range(3):
    optimizer.zero_grad()
    called(x).square().mean().backward()
    optimizer.step()
torch.save([one.detach() for one in model.parameters()], sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wrapped", "in-place", "function"])
def test_a_script_that_compiles_by_itself_is_eager_in_eager_mode(how: str, numdrift: Numdrift, tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(COMPILING)
    python(tmp_path, script, "plain", tmp_path / "bare.pt").check_returncode()
    # when
    record(numdrift, script, "cpu", arguments=(how, str(tmp_path / "recorded.pt")))
    # then
    bare, recorded = torch.load(tmp_path / "bare.pt"), torch.load(tmp_path / "recorded.pt")
    assert all(torch.equal(one, other) for one, other in zip(bare, recorded, strict=True))
    assert {entry.stage for entry in run_of(tmp_path, "cpu").entries} <= {"pre", "stream"}


@pytest.mark.slow
def test_an_op_that_is_kept_whole_changes_the_pre_graph_and_nothing_after_it(
    numdrift: Numdrift, tmp_path: Path, tiny: Path
) -> None:
    record(numdrift, tiny, "compile", "whole=compile,decompose.aten.linear=off", arguments=("--steps", "2"))
    found = difference(numdrift, "runs/g/compile", "runs/g/whole")
    assert found["post_changed"] is False
    assert found["answers"][0].startswith("The pre graphs differ")
    assert found["answers"][0].endswith("the post graphs are the same.")
    counts = {(one["phase"], one["op"]): (one["a"], one["b"]) for one in found["counts"]}
    assert counts["forward", "aten.linear"] == (0, 2)
    assert counts["forward", "aten.addmm"] == (2, 0)
