"""The graphs of the lazy core: what cut them, what their values are, and that nothing of the training changes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.harness.records.test_graph_record import run_at
from tests.processes.forked import python

from numdrift.harness.backends.dumped_ir import BEGIN
from numdrift.harness.backends.lazy.lazy_dump import parse
from numdrift.harness.graphs.run_graphs import GraphExecution, RunGraphs
from numdrift.harness.records.tools.graph_record import LAZY_DUMP, Graph, Node, lazy_dump

SCRIPT = """
import json, sys, traceback
from pathlib import Path
import torch, torch._lazy
from torch import nn
from numdrift.harness.backends.lazy.capture import LazyCapture
from numdrift.harness.hooks.graph_capture import CaptureRequest
from numdrift.harness.records.tools.graph_record import GraphFolder
from numdrift.harness.torch_private.deferred.lazy import start_lazy_backend

what = sys.argv[1].split("+")
steps = [int(one) for one in sys.argv[2].split(",") if one]
start_lazy_backend()
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b, self.drop = nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.3)
    def forward(self, x):
        h = self.act(self.a(x))
        if "fallback" in what:
            h = torch.lerp(h, h * h, 0.5)  # lerp
        return self.b(self.drop(h) if "dropout" in what else h)

model, broken = None, []

def is_in_an_op():
    return any(one.name == "_after" for one in traceback.extract_stack())

def named():
    if "broken" in what and folder.step == 1 and is_in_an_op():
        raise ValueError("no names")
    if model is None:
        return {}
    found = {f"parameter {name}": one for name, one in model.named_parameters()}
    return found | {f"gradient {n}": one.grad for n, one in model.named_parameters() if one.grad is not None}

def tell(method, *arguments):
    if capture is not None and not broken:
        try:
            getattr(capture, method)(*arguments)
        except Exception as error:
            broken.append(repr(error))
            capture.remove()

def mark():
    tell("about_to_cut")
    torch._lazy.mark_step()  # mark

folder = GraphFolder(Path("graphs"), "lazy")
capture = LazyCapture(CaptureRequest(folder, __file__, steps, named, broken.append)) if steps else None
tell("install")
model = Net().to("lazy")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(5, 8).to("lazy"), torch.randint(0, 4, (5,)).to("lazy")
tell("adopted", model)
losses = []
for step in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y) * 2
    if "item" in what:
        losses.append(loss.item())  # item
    tell("backward_started", [loss])
    loss.backward()  # backward
    tell("closing", "backward")
    if "mark" in what:
        mark()
    tell("reached", "backward")
    optimizer.step()
    tell("closing", "step")
    if "mark" in what:
        mark()
    folder.step += 1
    tell("reached", "step")
    if "late" in what:
        torch._lazy.mark_step()  # late
    if "item" not in what:
        losses.append(loss.item())
dump = Path("graphs/lazy-graphs.txt")
kept = dump.stat().st_size if capture is not None else 0
tell("remove")
values = [one.detach().cpu().numpy().tobytes().hex() for one in model.parameters()]
print(json.dumps({"losses": [one.hex() for one in losses], "values": values, "kept": kept, "broken": broken}))
"""


@dataclass(frozen=True)
class Trained:
    """A training in a process of its own, which has one lazy core."""

    path: Path
    printed: Mapping[str, Any]

    @cached_property
    def read(self) -> RunGraphs:
        return RunGraphs(run_at(self.path))

    def graph(self, name: str) -> Graph:
        return self.read.graph(name)

    @property
    def executions(self) -> list[GraphExecution]:
        return list(self.read.executions)

    @property
    def bits(self) -> tuple[Any, Any]:
        return self.printed["losses"], self.printed["values"]

    def line(self, mark: str) -> str:
        """The script's line that ends in this comment, as a graph names it."""
        path = self.path / "train.py"
        lines = path.read_text().splitlines()
        return f"{path}:{next(at for at, one in enumerate(lines, 1) if one.endswith(f'# {mark}'))}"


def train(path: Path, what: str, steps: str = "0,1") -> Trained:
    """Train for four steps, capturing `steps`: none of them, if it is empty."""
    script = path / "train.py"
    (path / "graphs").mkdir(parents=True)
    script.write_text(SCRIPT)
    done = python(path, script, what, steps, **lazy_dump(path), OMP_NUM_THREADS="1")  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return Trained(path, json.loads(done.stdout.splitlines()[-1]))


def hashes_without_capture(trained: Trained) -> list[str]:
    text = (trained.path / "graphs" / LAZY_DUMP).read_text()
    return [parse(one).digest for one in text.split(BEGIN)[1:]]


def only(graph: Graph, op: str, phase: str = "") -> Node:
    found = [node for node in graph.nodes if node.op == op and phase in ("", node.phase)]
    assert len(found) == 1, [node.name for node in found]
    return found[0]


def given_to(graph: Graph, node: Node, argument: str) -> str:
    """What an argument of a node is bound to, through transposes and copies."""
    value = node.inputs[node.input_names.index(argument)]
    makers = {output: one for one in graph.nodes for output in one.outputs}
    while value in makers and makers[value].op in ("t_copy", "detach_copy"):
        value = makers[value].inputs[0]
    return graph.values[value].binding


def test_a_mark_step_after_each_phase_makes_two_graphs_a_step(tmp_path: Path) -> None:
    # given
    plain = train(tmp_path / "plain", "mark", "")
    # when
    trained = train(tmp_path / "captured", "mark")
    # then
    cuts = [(one.step, one.graph, one.cut) for one in trained.executions]
    marked = {"reason": "mark_step", "op": "", "source": trained.line("mark")}
    names = [(0, "0-forward+backward"), (0, "0-optimizer"), (1, "1-forward+backward"), (1, "1-optimizer")]
    assert cuts == [(step, name, marked) for step, name in names]
    counters = {"compiled": 2, "cached": 0, "mark_steps": 2, "fallbacks": 0, "items": 0}
    assert trained.read.counters[0] == counters
    # and nothing has changed: neither the bits nor what the core takes for the same graph
    assert trained.bits == plain.bits
    reference = hashes_without_capture(plain)
    assert [one.hash for one in trained.executions] == reference[:4]
    assert trained.printed["broken"] == []


def test_places_and_bindings_are_those_of_the_script(tmp_path: Path) -> None:
    # when
    trained = train(tmp_path, "mark")
    # then a node knows its module, and its weights (of equal shapes) are those of that module
    for name in ("0-forward+backward-pre", "1-forward+backward-pre", "1-forward+backward-post"):
        graph = trained.graph(name)
        linear = [node for node in graph.nodes if node.op == "addmm"]
        assert [node.module for node in linear] == ["a", "b"], name
        for node in linear:
            assert given_to(graph, node, "mat2") == f"parameter {node.module}.weight"
            assert given_to(graph, node, "self") == f"parameter {node.module}.bias"
            assert given_to(graph, node, "alpha") == "constant"
        # and the backward keeps the op of the forward whole
        forward, backward = only(graph, "tanh"), only(graph, "tanh_backward")
        assert (forward.phase, backward.phase) == ("forward", "backward")
        assert backward.module == forward.module == "act"
        assert backward.sequence == forward.sequence is not None
        assert backward.source == forward.source
        bound = {graph.values[one].binding for one in graph.outputs}
        assert bound >= {"loss", "gradient a.weight", "gradient b.bias"}
        assert not graph.notes
    # and the optimizer's graph takes gradients and gives parameters
    graph = trained.graph("1-optimizer-pre")
    step = [node for node in graph.nodes if node.op == "add" and node.attributes.get("alpha") == -0.1]
    taken = [given_to(graph, node, "self") for node in step]
    assert taken == [graph.values[node.outputs[0]].binding for node in step]
    assert sorted(taken) == [f"parameter {one}.{kind}" for one in "ab" for kind in ("bias", "weight")]


def test_the_optimised_graph_says_what_it_covers(tmp_path: Path) -> None:
    # when
    trained = train(tmp_path, "mark")
    before, after = trained.graph("1-forward+backward-pre"), trained.graph("1-forward+backward-post")
    # then every node before is computed by one after, by the same op
    covered = {name: node for node in after.nodes for name in node.covers}
    assert set(covered) == {node.name for node in before.nodes}
    assert all(covered[node.name].op == node.op for node in before.nodes)
    assert len(after.nodes) < len(before.nodes)  # TorchScript computes what occurs twice once
    assert after.pre == before.name and after.hash == before.hash
    # and inputs are in TorchScript's order, with shapes
    assert list(after.inputs) == [f"p{number}" for number in range(len(after.inputs))]
    assert after.values["p0"].binding == "constant"
    assert all(after.values[one].shape is not None for one in after.inputs)


def test_without_a_mark_step_item_cuts(tmp_path: Path) -> None:
    # given
    plain = train(tmp_path / "plain", "item", "")
    # when
    trained = train(tmp_path / "captured", "item")
    # then
    cuts = [(one.graph, one.cut) for one in trained.executions]
    item = {"reason": "item", "op": "", "source": trained.line("item")}
    assert cuts == [("0-forward", item), ("1-forward+backward+optimizer", item)]
    assert {node.phase for node in trained.graph("0-forward-pre").nodes} == {"forward"}
    assert trained.bits == plain.bits


def test_what_falls_back_to_the_cpu_cuts_and_is_named(tmp_path: Path) -> None:
    # given
    plain = train(tmp_path / "plain", "mark+fallback+dropout", "")
    # when
    trained = train(tmp_path / "captured", "mark+fallback+dropout")
    # then each argument of the op is copied to the CPU, which executes a graph each
    fallback = {"reason": "fallback", "op": "aten.lerp.Scalar", "source": trained.line("lerp")}
    assert [one.cut for one in trained.executions if one.step == 0][:2] == [fallback, fallback]
    assert [one.cut["reason"] for one in trained.executions if one.cut][2:4] == ["mark_step", "mark_step"]
    assert trained.read.counters[0]["fallbacks"] == 1
    assert trained.graph("0-forward-post").nodes[-1].op == "tanh"
    assert trained.bits == plain.bits


def test_a_mark_step_behind_the_step_belongs_to_it_and_later_graphs_are_not_kept(tmp_path: Path) -> None:
    # when only a later step is captured
    trained = train(tmp_path, "late", "2")
    # then what was pending from the step before is not taken, and names are known all the same
    (execution,) = trained.executions
    assert (execution.step, execution.graph) == (2, "2-forward+backward+optimizer")
    assert execution.cut == {"reason": "mark_step", "op": "", "source": trained.line("late")}
    graph = trained.graph("2-forward+backward+optimizer-pre")
    for node in graph.nodes:
        if node.op == "addmm":
            assert given_to(graph, node, "mat2") == f"parameter {node.module}.weight"
    # and the file that the core writes neither grows nor stays
    assert trained.printed["kept"] == 0
    assert not os.path.lexists(tmp_path / "graphs" / LAZY_DUMP)


def test_a_failure_within_an_op_ends_the_capture_and_not_the_training(tmp_path: Path) -> None:
    # given
    plain = train(tmp_path / "plain", "item", "")
    # when something fails while an op is executed
    trained = train(tmp_path / "captured", "item+broken")
    # then it is raised at the next moment, and what was captured before is kept
    assert trained.printed["broken"] == ["ValueError('no names')"]
    assert [one.graph for one in trained.executions] == ["0-forward"]
    assert trained.bits == plain.bits


@pytest.mark.slow
def test_a_swapped_kernel_is_a_group_of_the_op_that_it_stands_for(tmp_path: Path, numdrift: Any) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch\n"
        "d = os.environ.get('DEVICE', 'cpu')\n"
        "m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)).to(d)\n"
        "o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "x = torch.ones(2, 4).to(d)\n"
        "for _ in range(3):\n"
        "    o.zero_grad(); m(x).square().mean().backward(); o.step()\n"
    )
    # when
    done = numdrift("run", script, "--mode", "lazy,kernel.tanh_backward=decomposed", "--graphs")
    # then
    assert done.returncode == 0, done.stderr
    graph = RunGraphs(run_at(tmp_path / "runs" / "train" / "lazy")).graph("0-forward+backward-pre")
    group = [node for node in graph.nodes if node.original == "aten.tanh_backward"]
    assert [node.op for node in group] == ["mul", "sub", "mul"]
    assert {(node.module, node.phase) for node in group} == {("1", "backward")}
    assert len({node.group for node in group}) == 1
    assert "tanh_backward" not in {node.op for node in graph.nodes}
