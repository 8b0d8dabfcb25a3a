from __future__ import annotations

import torch
from torch import fx

from numdrift.harness.backends.capturing.generated_kernels import GraphBefore

ATEN = torch.ops.aten


def linear_and_tanh() -> tuple[fx.Graph, dict[str, fx.Node]]:
    """`tanh(x @ w + b) * 2`, every node by its name."""
    graph = fx.Graph()
    x, w, b = (graph.placeholder(name) for name in "xwb")
    mm = graph.create_node("call_function", ATEN.mm.default, (x, w), name="mm")
    add = graph.create_node("call_function", ATEN.add.Tensor, (mm, b), name="add")
    tanh = graph.create_node("call_function", ATEN.tanh.default, (add,), name="tanh")
    mul = graph.create_node("call_function", ATEN.mul.Tensor, (tanh, 2), name="mul")
    graph.output((mul,))
    return graph, {one.name: one for one in graph.nodes}


def replace(graph: fx.Graph, old: fx.Node, new: fx.Node) -> None:
    old.replace_all_uses_with(new)
    graph.eliminate_dead_code()


def test_what_stayed_stands_for_itself() -> None:
    graph, nodes = linear_and_tanh()
    before = GraphBefore(graph)
    nodes["tanh"].target = ATEN.sigmoid.default
    assert before.covered_by(graph)["tanh"] == ("tanh",)


def test_a_fused_node_stands_for_both_that_it_replaces() -> None:
    # given
    graph, nodes = linear_and_tanh()
    before = GraphBefore(graph)
    # when
    with graph.inserting_before(nodes["tanh"]):
        fused = graph.call_function(ATEN.addmm.default, (nodes["b"], nodes["x"], nodes["w"]))
    replace(graph, nodes["add"], fused)
    # then
    covered = before.covered_by(graph)
    assert covered[fused.name] == ("mm", "add")
    assert covered["tanh"] == ("tanh",)


def test_several_new_nodes_stand_for_the_one_that_they_replace() -> None:
    # given
    graph, nodes = linear_and_tanh()
    before = GraphBefore(graph)
    # when tanh(a) is 2 * sigmoid(2 * a) - 1
    with graph.inserting_before(nodes["mul"]):
        doubled = graph.call_function(ATEN.mul.Tensor, (nodes["add"], 2))
        sigmoid = graph.call_function(ATEN.sigmoid.default, (doubled,))
        shifted = graph.call_function(ATEN.sub.Tensor, (sigmoid, 1))
    replace(graph, nodes["tanh"], shifted)
    # then
    covered = before.covered_by(graph)
    assert {covered[one.name] for one in (doubled, sigmoid, shifted)} == {("tanh",)}
    assert covered["add"] == ("add",)


def test_a_node_that_was_dropped_is_stood_for_by_nothing() -> None:
    # given
    graph, nodes = linear_and_tanh()
    before = GraphBefore(graph)
    # when
    replace(graph, nodes["tanh"], nodes["add"])
    # then
    assert all("tanh" not in names for names in before.covered_by(graph).values())


def test_two_replacements_share_no_node_but_what_both_were_computed_from() -> None:
    # given
    graph, nodes = linear_and_tanh()
    before = GraphBefore(graph)
    # when
    with graph.inserting_before(nodes["add"]):
        product = graph.call_function(ATEN.bmm.default, (nodes["x"], nodes["w"]))
    replace(graph, nodes["mm"], product)
    with graph.inserting_before(nodes["mul"]):
        sine = graph.call_function(ATEN.sin.default, (nodes["add"],))
    replace(graph, nodes["tanh"], sine)
    # then
    covered = before.covered_by(graph)
    assert (covered[product.name], covered[sine.name]) == (("mm",), ("tanh",))
