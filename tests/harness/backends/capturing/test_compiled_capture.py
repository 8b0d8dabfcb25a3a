from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from numdrift.harness.backends.capturing.generated_kernels import computes
from numdrift.harness.records.tools.graph_record import Graph

from ..compiled_models import Attention, TanhMlp
from ..compiled_training import Captured, train, train_captured


def mlp_batch(step: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(step)
    return torch.zeros(4), torch.randn(8, 4, generator=generator)


def attention_batch(step: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(step)),)


def seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return train_captured(tmp_path_factory.mktemp("mlp"), seeded(TanhMlp), mlp_batch, steps=3)


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return train_captured(tmp_path_factory.mktemp("attention"), seeded(Attention), attention_batch)


@pytest.mark.slow
def test_a_training_leaves_five_graphs(mlp: Captured) -> None:
    assert [(one["name"], one["pre"]) for one in mlp.of("graph")] == [
        ("0-forward-dynamo", ""),
        ("0-forward-pre", ""),
        ("0-forward-post", "0-forward-pre"),
        ("0-backward-pre", ""),
        ("0-backward-post", "0-backward-pre"),
    ]
    assert not mlp.of("unavailable")
    assert mlp.graphs["0-backward-post"].seconds
    assert re.fullmatch("[0-9a-f]{16}", mlp.graphs["0-forward-pre"].hash)


def test_executions_and_compilations_are_counted(mlp: Captured) -> None:
    counted = [(one["step"], one["compiled"], one["cached"]) for one in mlp.of("counters")]
    assert counted == [(0, 2, 0), (1, 0, 2)]
    hashes = {name: mlp.graphs[f"{name}-pre"].hash for name in ("0-forward", "0-backward")}
    assert [(one["step"], one["graph"], one["hash"]) for one in mlp.of("executed")] == [
        (step, name, hashes[name]) for step in (0, 1) for name in ("0-forward", "0-backward")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "batch"), [(TanhMlp, mlp_batch), (Attention, attention_batch)], ids=["mlp", "attention"]
)
def test_capture_changes_no_bit(kind: type[nn.Module], batch: object, request: pytest.FixtureRequest) -> None:
    # given
    captured = request.getfixturevalue("mlp" if kind is TanhMlp else "attention")
    model = seeded(kind)
    torch.compiler.reset()
    # when
    losses = train(model, batch, steps=len(captured.losses))  # type: ignore[arg-type]
    # then
    assert all(torch.equal(a, b) for a, b in zip(losses, captured.losses, strict=True))
    named = dict(model.named_parameters())
    assert named.keys() == captured.parameters.keys()
    assert all(torch.equal(named[name], captured.parameters[name]) for name in named)


def test_inputs_are_bound_by_their_order_and_not_by_their_shape(mlp: Captured) -> None:
    # given the module's own forward: layer 1 first, inputs in the order of the arguments
    forward = mlp.graphs["0-forward-pre"]
    products = [one for one in forward.nodes if one.op == "addmm"]
    # when
    used = [[root(forward, one) for one in product.inputs] for product in products]
    # then
    assert [(bias, weight) for bias, _, weight in used] == [
        (f"parameter layers.{number}.bias", f"parameter layers.{number}.weight") for number in (1, 0, 1)
    ]
    assert used[0][1] == "input 1"
    expected = {"input 0", "input 1", "buffer scale", *(f"parameter {name}" for name in mlp.parameters)}
    for stage in ("dynamo", "pre", "post"):
        assert set(mlp.bindings(f"0-forward-{stage}")) == expected


def root(graph: Graph, value: str) -> str:
    """What a value is to the script, through views."""
    maker = {one: node for node in graph.nodes for one in node.outputs}
    while value in maker and maker[value].op == "permute":
        value = maker[value].inputs[0]
    return graph.values[value].binding


def test_gradients_are_those_of_their_parameters(mlp: Captured) -> None:
    # given
    backward = mlp.graphs["0-backward-pre"]
    # when
    bound = {backward.values[one].binding: one for one in backward.outputs}
    # then
    assert set(bound) == {f"gradient {name}" for name in mlp.parameters}
    assert "tangent 0" in mlp.bindings("0-backward-pre")
    saved = {one for one in mlp.bindings("0-backward-pre") if one.startswith("saved ")}
    forward = mlp.graphs["0-forward-pre"]
    assert "saved tanh" in saved
    assert saved == {forward.values[one].binding for one in forward.outputs if one not in forward.inputs} - {"output 0"}
    # and the weight of layer 0 has the product of its own tanh's gradient
    maker = next(one for one in backward.nodes if bound["gradient layers.0.weight"] in one.outputs)
    assert (maker.op, maker.inputs[1]) == ("mm", "tanh")
    post = mlp.graphs["0-backward-post"]
    assert {post.values[one].binding for one in post.outputs} == set(bound)


def test_decomposed_calls_are_groups_of_their_own(mlp: Captured) -> None:
    groups: dict[str, list[str]] = {}
    for node in mlp.graphs["0-backward-pre"].nodes:
        if node.original == "aten.tanh_backward":
            groups.setdefault(node.group, []).append(node.op)
    assert [sorted(ops) for ops in groups.values()] == [["mul", "mul", "sub"]] * 2
    assert all(re.fullmatch(r"aten\.tanh_backward#\d+", name) for name in groups)
    product = next(one for one in mlp.graphs["0-backward-pre"].nodes if one.op == "mm")
    assert (product.original, product.group) == ("", "")


def test_nodes_know_their_module_line_and_forward(mlp: Captured) -> None:
    forward = {one.name: one for one in mlp.graphs["0-forward-pre"].nodes}
    source = TanhMlp.forward.__code__
    assert [forward[name].module for name in ("addmm", "addmm_1")] == ["layers.1", "layers.0"]
    assert forward["tanh"].module == ""
    assert forward["tanh"].source == f"{source.co_filename}:{source.co_firstlineno + 1}"
    backward = [one for one in mlp.graphs["0-backward-pre"].nodes if one.original == "aten.tanh_backward"]
    assert {one.sequence for one in backward} == {forward["tanh"].sequence, forward["tanh_1"].sequence}
    assert {one.module for one in backward} == {""}
    assert {one.phase for one in backward} == {"backward"}


@pytest.mark.parametrize("model", ["mlp", "attention"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_kernels_cover_every_node_that_computes(model: str, phase: str, request: pytest.FixtureRequest) -> None:
    # given
    captured: Captured = request.getfixturevalue(model)
    pre, post = captured.graphs[f"0-{phase}-pre"], captured.graphs[f"0-{phase}-post"]
    # when
    covered = {one for kernel in post.nodes for one in kernel.covers}
    noted = {word for note in post.notes for word in re.findall(r"\w+", note)}
    # then
    assert covered <= {one.name for one in pre.nodes}
    missing = {one.name for one in pre.nodes if computes(one, pre.values)} - covered
    assert missing <= noted
    assert not missing & {one.name for one in pre.nodes if one.op in ("mm", "addmm", "mul", "tanh", "sum")}


@pytest.mark.parametrize("model", ["mlp", "attention"])
def test_calls_of_libraries_cover_one_op_and_views(model: str, request: pytest.FixtureRequest) -> None:
    captured: Captured = request.getfixturevalue(model)
    checked = 0
    for phase in ("forward", "backward"):
        pre, post = captured.graphs[f"0-{phase}-pre"], captured.graphs[f"0-{phase}-post"]
        by_name = {one.name: one for one in pre.nodes}
        for call in (one for one in post.nodes if one.domain == "aten" and one.op in ("mm", "addmm")):
            ops = [by_name[name] for name in call.covers if computes(by_name[name], pre.values)]
            assert "mm" in ops[0].op, call
            assert len(ops) == 1 or (call.op == "addmm" and [one.op for one in ops] == ["mm", "add"])
            checked += 1
    assert checked > 2


def test_kernels_carry_their_source_and_their_body(mlp: Captured) -> None:
    post = mlp.graphs["0-backward-post"]
    kernels = [one for one in post.nodes if one.domain == "inductor"]
    assert kernels
    for kernel in kernels:
        assert "for(" in kernel.code and "extern" in kernel.code
        assert kernel.code.splitlines()[-2].strip() in post.code
        assert kernel.op in post.code
        assert {one.name for one in kernel.body} >= set(kernel.covers)
    tanh = next(one for one in kernels if "tanh_backward" in one.op)
    assert [one.op for one in tanh.body if one.original == "aten.tanh_backward"][:3] == ["mul", "sub", "mul"]


@pytest.mark.parametrize("model", ["mlp", "attention"])
def test_every_graph_is_in_the_order_of_its_data(model: str, request: pytest.FixtureRequest) -> None:
    captured: Captured = request.getfixturevalue(model)
    for graph in captured.graphs.values():
        known = set(graph.inputs)
        names = [one.name for one in graph.nodes]
        assert len(set(names)) == len(names)
        for node in graph.nodes:
            assert set(node.inputs) <= known, (graph.name, node.name)
            assert not set(node.outputs) & known, (graph.name, node.name)
            known |= set(node.outputs)
        assert set(graph.outputs) <= known, graph.name
        assert set(graph.values) >= known, graph.name
        if graph.stage != "dynamo":
            assert all(graph.values[one].shape is not None for node in graph.nodes for one in node.outputs)


def test_the_new_value_of_a_buffer_is_an_output(attention: Captured) -> None:
    forward = attention.graphs["0-forward-pre"]
    written = {one.attributes.get("dst", one.inputs[0]) for one in forward.nodes if one.op in ("copy_", "copy")}
    found = {forward.values[one].binding for one in (*forward.outputs, *written)}
    assert {"buffer batch_norm.running_mean", "buffer batch_norm.running_var"} <= found


@pytest.fixture
def sized(tmp_path: Path) -> Iterator[Captured]:
    def batch(step: int) -> tuple[torch.Tensor, ...]:
        return torch.zeros(4), torch.ones(6 + step, 4)

    yield train_captured(tmp_path, seeded(TanhMlp), batch, dynamic=True, steps=3)


def test_sizes_that_vary_are_inputs_of_one_graph(sized: Captured) -> None:
    # given three batches of other sizes, when compiled for any size
    bound = sized.bindings("0-forward-pre")
    # then there is one graph, whose sizes are not inputs of the script
    assert [one["name"] for one in sized.of("graph") if one["stage"] == "pre"] == [
        "0-forward-pre",
        "0-backward-pre",
    ]
    assert any(one.startswith("size s") for one in bound)
    assert sorted(one for one in bound if one.startswith("input ")) == ["input 0", "input 1"]
    forward = sized.graphs["0-forward-pre"]
    x = next(one for one in forward.inputs if forward.values[one].binding == "input 1")
    symbol, width = forward.values[x].shape or ()
    assert (isinstance(symbol, str), width) == (True, 4)
    backward = sized.graphs["0-backward-pre"]
    assert {backward.values[one].binding for one in backward.outputs} == {
        f"gradient {name}" for name in sized.parameters
    }
