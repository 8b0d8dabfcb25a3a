"""The ops of an eager step as graphs: their data flow, their places, and that nothing of the training changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.harness.records.test_graph_record import run_at
from torch import nn

from numdrift.harness.backends.capturing.eager_capture import EagerCapture
from numdrift.harness.graphs.run_graphs import RunGraphs
from numdrift.harness.hooks.graph_capture import CaptureRequest
from numdrift.harness.records.tools.graph_record import Graph, GraphFolder, Node

Named = Callable[[], dict[str, torch.Tensor]]


def names_of(model: nn.Module) -> Named:
    def named() -> dict[str, torch.Tensor]:
        found = {f"parameter {name}": one for name, one in model.named_parameters()}
        grads = {f"gradient {n}": one.grad for n, one in model.named_parameters() if one.grad is not None}
        return {**found, **grads}

    return named


class Training:
    """A training whose moments are told to a capture as the recorder tells them."""

    def __init__(self, path: Path, named: Named, steps: tuple[int, ...] = (0,)) -> None:
        self.folder = GraphFolder(path / "graphs", "cpu")
        self.failures: list[Exception] = []
        request = CaptureRequest(self.folder, __file__, steps, named, self.failures.append)
        self.capture = EagerCapture(request)
        self.path = path

    def step(self, loss: Callable[[], torch.Tensor], update: Callable[[], object], model: nn.Module) -> None:
        if self.folder.step == 0:
            self.capture.adopted(model)
        value = loss()
        self.capture.backward_started([value])
        value.backward()
        self.capture.closing("backward")
        self.capture.reached("backward")
        update()
        self.capture.closing("step")
        self.folder.step += 1
        self.capture.reached("step")

    def graphs(self) -> dict[str, Graph]:
        self.capture.remove()
        read = RunGraphs(run_at(self.path))
        return {entry.name: read.graph(entry.name) for entry in read.entries}


def one_step(path: Path, model: nn.Module, x: torch.Tensor, lr: float = 0.1) -> dict[str, Graph]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    training = Training(path, names_of(model))
    training.capture.install()
    training.step(lambda: model(x).square().mean(), optimizer.step, model)
    return training.graphs()


def only(graph: Graph, op: str) -> Node:
    (found,) = [node for node in graph.nodes if node.op == op]
    return found


def test_each_phase_is_a_graph(tmp_path: Path) -> None:
    graphs = one_step(tmp_path, nn.Linear(3, 2), torch.ones(4, 3))
    assert list(graphs) == ["0-forward-pre", "0-backward-pre", "0-optimizer-pre"]
    assert all({node.phase for node in graph.nodes} == {graph.phase} for graph in graphs.values())


def test_edges_lead_from_parameters_to_their_gradients_and_updates(tmp_path: Path) -> None:
    # given two layers of one shape, so that shapes cannot tell their tensors apart
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    # when
    graphs = one_step(tmp_path, model, torch.ones(4, 3))
    forward, backward, update = graphs.values()
    # then
    first, second = [node for node in forward.nodes if node.op == "addmm"]
    tanh = only(forward, "tanh")
    assert (first.inputs[0], tanh.inputs, second.inputs[:2]) == (
        "0.bias",
        first.outputs,
        ("2.bias", *tanh.outputs),
    )
    names = {f"{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}
    bound = {graph.phase: {graph.values[one].binding for one in graph.outputs} for graph in graphs.values()}
    assert bound["backward"] >= {f"gradient {name}" for name in names}
    assert bound["optimizer"] >= {f"parameter {name}" for name in names}
    for node in (node for node in update.nodes if node.op == "add_"):
        parameter, gradient = (update.values[one].binding for one in node.inputs)
        assert gradient == parameter.replace("parameter", "gradient")
        assert update.values[node.outputs[0]].binding == parameter
    assert only(backward, "tanh_backward").inputs[0] in {one for node in backward.nodes for one in node.outputs}


def test_a_backward_op_has_the_module_line_and_number_of_its_forward(tmp_path: Path) -> None:
    graphs = one_step(tmp_path, nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.ones(4, 3))
    forward, backward = only(graphs["0-forward-pre"], "tanh"), only(graphs["0-backward-pre"], "tanh_backward")
    assert (backward.module, backward.sequence, backward.source) == ("1", forward.sequence, forward.source)
    assert forward.source.startswith(__file__)
    assert forward.sequence is not None


def test_arguments_have_the_names_of_the_schema(tmp_path: Path) -> None:
    update = one_step(tmp_path, nn.Linear(3, 2), torch.ones(4, 3), lr=0.25)["0-optimizer-pre"]
    node = update.nodes[-1]
    assert (node.full_op, node.input_names, node.attributes) == (
        "aten.add_.Tensor", ("self", "other"), {"alpha": -0.25},
    )  # fmt: skip


def test_what_is_written_through_a_view_is_read_from_its_base(tmp_path: Path) -> None:
    # given
    model = nn.Linear(2, 2)

    def update() -> None:
        with torch.no_grad():
            row = model.weight[0]
            row.mul_(2.0)
            model.weight.neg_()

    # when
    training = Training(tmp_path, names_of(model))
    training.capture.install()
    training.step(lambda: model(torch.ones(1, 2)).sum(), update, model)
    graph = training.graphs()["0-optimizer-pre"]
    # then
    assert only(graph, "neg_").inputs == only(graph, "mul_").outputs


def test_new_memory_under_a_parameter_is_what_it_carries(tmp_path: Path) -> None:
    # given an update as SAM's: p.data = something
    model = nn.Linear(2, 2)

    def update() -> None:
        with torch.no_grad():
            model.weight.data = model.weight + 1.0
            model.weight.neg_()

    # when
    training = Training(tmp_path, names_of(model))
    training.capture.install()
    training.step(lambda: model(torch.ones(1, 2)).sum(), update, model)
    graph = training.graphs()["0-optimizer-pre"]
    # then
    assert only(graph, "neg_").inputs == only(graph, "add").outputs


def test_every_edge_comes_from_a_node_or_an_input(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    for graph in one_step(tmp_path, model, torch.randn(2, 1, 4, 4)).values():
        made = set(graph.inputs)
        for node in graph.nodes:
            assert set(node.inputs) <= made, node
            made |= set(node.outputs)
        assert set(graph.outputs) <= made
        assert set(graph.values) >= made
        assert len({node.name for node in graph.nodes}) == len(graph.nodes)


def test_what_the_script_does_before_its_first_model_call_is_left_out(tmp_path: Path) -> None:
    # given
    training = Training(tmp_path, dict)
    training.capture.install()
    model, x = nn.Linear(2, 2), torch.ones(3, 2).sin()
    # when
    training.step(lambda: model(x).sum(), lambda: None, model)
    # then
    ops = {node.op for node in training.graphs()["0-forward-pre"].nodes}
    assert "sin" not in ops
    assert "addmm" in ops


def test_a_graph_is_written_once_and_its_executions_are_counted(tmp_path: Path) -> None:
    # given
    model = nn.Linear(2, 2)
    training = Training(tmp_path, names_of(model), steps=(0, 1))
    training.capture.install()
    # when
    for _ in range(3):
        training.step(lambda: model(torch.ones(1, 2)).sum(), model.zero_grad, model)
    # then
    assert list(training.graphs()) == ["0-forward-pre", "0-backward-pre"]
    executed = [(one.step, one.graph) for one in RunGraphs(run_at(tmp_path)).executions]
    assert executed == [(0, "0-forward"), (0, "0-backward"), (1, "0-forward"), (1, "0-backward")]


def test_no_bit_changes(tmp_path: Path) -> None:
    def trained(path: Path | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        x = torch.randn(5, 8)
        training = None if path is None else Training(path, names_of(model), steps=(0, 1))
        if training is not None:
            training.capture.install()
        for _ in range(3):
            optimizer.zero_grad()
            if training is None:
                model(x).square().mean().backward()
                optimizer.step()
            else:
                training.step(lambda: model(x).square().mean(), optimizer.step, model)
        if training is not None:
            assert training.graphs()
        return [one.detach() for one in model.parameters()]

    bare, captured = trained(None), trained(tmp_path)
    assert all(torch.equal(one, other) for one, other in zip(bare, captured, strict=True))


def test_a_failing_capture_lets_the_training_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    training = Training(tmp_path, dict)
    training.capture.install()
    monkeypatch.setattr(training.capture, "dispatched", lambda *_: 1 / 0)
    # when
    result = torch.ones(2) + 1
    training.capture.remove()
    # then
    assert result.tolist() == [2.0, 2.0]
    assert isinstance(training.failures[0], ZeroDivisionError)


def test_memory_that_was_given_back_carries_nothing_any_more(tmp_path: Path) -> None:
    # given numbers that are freed, and others from outside that get their memory
    model = nn.Linear(2, 2)

    @torch.no_grad()
    def update() -> None:
        for _ in range(50):
            torch.ones(1000).mul(2.0)
            torch.tensor([float(n) for n in range(1000)]).neg()

    # when
    training = Training(tmp_path, names_of(model))
    training.capture.install()
    training.step(lambda: model(torch.ones(1, 2)).sum(), update, model)
    graph = training.graphs()["0-optimizer-pre"]
    # then
    made = {one for node in graph.nodes for one in node.outputs}
    fresh = [node for node in graph.nodes if node.op == "lift_fresh"]
    assert len(fresh) == 50
    assert not [node for node in fresh if set(node.inputs) & made]


class Parent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.first(x).tanh())
        return result.sigmoid()


def test_a_backward_op_between_modules_belongs_to_the_module_around_them(tmp_path: Path) -> None:
    backward = one_step(tmp_path, Parent(), torch.ones(3, 2))["0-backward-pre"]
    assert (only(backward, "tanh_backward").module, only(backward, "sigmoid_backward").module) == ("", "")
