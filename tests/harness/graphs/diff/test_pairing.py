"""Pairing graphs that are known to the last node: random ones, and a transformer in two modes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.graphs.diff.op_kinds import kind_of_name, passes_through
from numdrift.harness.graphs.diff.paired_ops import Op, ops_of
from numdrift.harness.graphs.diff.pairing import Matched, pair_ops
from numdrift.harness.graphs.diff.step_pairing import Executed
from numdrift.harness.records.tools.graph_record import Graph, Node, Value

from .building import Builder, compared, renamed, transformer, truths, wrong_pairs

OPS = ("add", "mul", "sub", "mm", "tanh", "view", "detach", "clone", "ones_like")


@st.composite
def graphs(draw: st.DrawFn, *, told: bool | None = None) -> Graph:
    """A graph of random ops on random earlier values; where `told`, every node has a module of its own."""
    told = draw(st.booleans()) if told is None else told
    build = Builder(draw(st.sampled_from(["forward", "backward"])))
    known = [build.given("w", "parameter w"), build.given("x", "input 0"), build.given("s", "saved s")]
    for number in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from(OPS))
        count = 2 if op in ("add", "mul", "sub", "mm") else 1
        inputs = draw(st.lists(st.sampled_from(known), min_size=count, max_size=count))
        known.append(build.op(op, *inputs, module=f"layers.{number}" if told else None))
    return build.graph("0-forward")


def paired(a: Graph, b: Graph) -> list[Matched]:
    return pair_ops(ops_of([Executed(a, 0)]), ops_of([Executed(b, 0)]))


def said(found: Sequence[Matched]) -> Counter[tuple[str, frozenset[str], frozenset[str]]]:
    """What a pairing says, without its order."""
    return Counter((one.kind, names(one.a), names(one.b)) for one in found)


def names(ops: Sequence[Op]) -> frozenset[str]:
    return frozenset(op.place.node for op in ops)


@settings(deadline=None)
@given(graphs())
def test_a_graph_against_itself_pairs_every_node_with_itself(graph: Graph) -> None:
    found = paired(graph, graph)
    assert {one.kind for one in found} == {"same"}
    assert [one.a[0].place for one in found] == [one.b[0].place for one in found]
    assert len(found) == len(graph.nodes)
    assert all(one.by for one in found)


@settings(deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_names_of_nodes_and_values_mean_nothing(graph: Graph, rng: random.Random) -> None:
    # given the same graph with other names
    (other,) = renamed([graph], rng)
    # when
    found = paired(graph, other)
    # then each node is with the one at its place
    number = {node.name: place for one in (graph, other) for place, node in enumerate(one.nodes)}
    assert [(number[one.a[0].place.node], number[one.b[0].place.node]) for one in found] == [
        (place, place) for place in range(len(graph.nodes))
    ]


@settings(deadline=None)
@given(graphs(), graphs())
def test_exchanging_the_sides_mirrors_the_result(a: Graph, b: Graph) -> None:
    mirror = {"only-a": "only-b", "only-b": "only-a"}
    back = said(paired(b, a))
    assert said(paired(a, b)) == Counter({(mirror.get(kind, kind), y, x): n for (kind, x, y), n in back.items()})


@settings(deadline=None)
@given(graphs(told=True), st.data())
def test_a_node_that_one_side_lacks_is_found(graph: Graph, data: st.DataObject) -> None:
    # given a graph without one of the nodes, whose takers take what it took; a view of it would be another view
    viewed = {node.inputs[0] for node in graph.nodes if passes_through(kind_of_name(node.full_op))}
    gone = data.draw(st.sampled_from([node for node in graph.nodes if node.name not in viewed]))
    heir = gone.inputs[0]
    nodes = tuple(
        replace(node, inputs=tuple(heir if one == gone.name else one for one in node.inputs))
        for node in graph.nodes
        if node is not gone
    )
    # when
    found = paired(graph, replace(graph, nodes=nodes))
    # then
    alone = [one for one in found if one.kind != "same"]
    assert [(one.kind, one.a[0].place.node) for one in alone] == [("only-a", gone.name)]
    assert all(one.a[0].place == one.b[0].place for one in found if one.kind == "same")


@settings(deadline=None)
@given(graphs(), graphs())
def test_every_node_is_in_one_pair_and_pairs_are_of_one_kind_of_op(a: Graph, b: Graph) -> None:
    found = paired(a, b)
    for side, graph in (("a", a), ("b", b)):
        placed = [op.place.node for one in found for op in getattr(one, side)]
        assert sorted(placed) == sorted(node.name for node in graph.nodes)
    for one in found:
        if one.kind == "same":
            assert one.a[0].kind == one.b[0].kind


@pytest.mark.parametrize("told", [True, False], ids=["modules and lines known", "data flow alone"])
def test_a_transformer_is_paired_to_the_last_node_and_never_wrongly(told: bool, tmp_path: Path) -> None:
    # given a side that keeps layer_norm and gelu whole, and one that takes them apart, with meaningless names
    a = transformer(3, apart=False, told=told)
    b = transformer(3, apart=True, told=told, rng=random.Random(1))
    # when
    diff = compared(tmp_path, a, b)
    # then
    assert wrong_pairs(diff, a, b) == []
    kinds = Counter(pair.kind for pair in diff.pairs)
    assert set(kinds) == {"same", "group"}
    assert kinds["group"] == 3 * 6  # two norms and a gelu a block, forward and backward
    assert set(truths(a).values()) == set(truths(b).values())


@pytest.mark.parametrize("unknown", ["groups", "saved values", "shapes"])
def test_what_a_mode_does_not_tell_makes_no_pair_wrong(unknown: str, tmp_path: Path) -> None:
    # given sides that say nothing of modules, and one that lacks something more
    a = transformer(3, apart=False, told=False)
    b = [without(graph, unknown) for graph in transformer(3, apart=True, told=False, rng=random.Random(2))]
    # when
    diff = compared(tmp_path, a, b)
    # then
    assert wrong_pairs(diff, a, b) == []
    assert sum(pair.kind in ("same", "group") for pair in diff.pairs) > 0.9 * sum(len(one.nodes) for one in a)


def without(graph: Graph, what: str) -> Graph:
    if what == "groups":
        return replace(graph, nodes=tuple(replace(one, group="", original="") for one in graph.nodes))

    def value(of: Value) -> Value:
        if what == "shapes":
            return replace(of, shape=None)
        return replace(of, binding="input") if of.binding.startswith("saved") else of

    return replace(graph, values={name: value(of) for name, of in graph.values.items()})


def test_ops_between_the_same_values_are_a_group_without_being_told_so() -> None:
    # given tanh_backward, and mul, sub, mul that nothing says to be parts of it
    whole, apart = Builder("backward"), Builder("backward")
    for build in (whole, apart):
        build.given("w", "parameter w")
        build.given("y", "saved y")
        build.op("mm", "w", "w")
    whole.op("tanh_backward", "mm_0", "y")
    apart.op("mul", "y", "y")
    apart.op("sub", "mul_1")
    apart.op("mul", "mm_0", "sub_2")
    for build in (whole, apart):
        build.op("mm", build.nodes[-1].name, "w")
    # when
    found = paired(whole.graph("0-backward"), apart.graph("0-backward"))
    # then
    (group,) = [one for one in found if one.kind != "same"]
    assert (group.kind, group.represents) == ("group", "tanh_backward")
    assert [op.place.node for op in group.b] == ["mul_1", "sub_2", "mul_3"]


def test_one_op_in_the_place_of_another_is_replaced_only_between_pairs() -> None:
    # given
    def graph(op: str, neighbour: str) -> Graph:
        build = Builder("forward")
        build.given("w", "parameter w")
        build.op("mm", "w", "w")
        build.op(op, "mm_0")
        build.op(neighbour, f"{op}_1")
        return build.graph("0-forward")

    # when, then
    assert said(paired(graph("relu", "mm"), graph("gelu", "mm"))) == Counter(
        [
            ("same", frozenset(["mm_0"]), frozenset(["mm_0"])),
            ("replaced", frozenset(["relu_1"]), frozenset(["gelu_1"])),
            ("same", frozenset(["mm_2"]), frozenset(["mm_2"])),
        ]
    )
    assert Counter(one.kind for one in paired(graph("relu", "sum"), graph("gelu", "mean"))) == Counter(
        {"same": 1, "only-a": 2, "only-b": 2}
    )


def test_a_foreach_node_is_paired_with_the_ops_of_its_tensors() -> None:
    # given one in-place node for two parameters, against two ops
    lists, single = Builder("optimizer"), Builder("optimizer")
    for build in (lists, single):
        for name in ("p", "q"):
            build.given(name, f"parameter {name}", (4 if name == "p" else 5,))
            build.given(f"g{name}", f"gradient {name}", (4 if name == "p" else 5,))
    node = Node(
        "foreach", "_foreach_add_", phase="optimizer", inputs=("p", "q", "gp", "gq"),
        input_names=("self", "self", "other", "other"), outputs=("p1", "q1"),
    )  # fmt: skip
    lists.nodes.append(node)
    single.op("add_", "q", "gq", shape=(5,))
    single.op("add_", "p", "gp", shape=(4,))
    # when
    (found,) = paired(lists.graph("0-optimizer"), single.graph("0-optimizer"))
    # then
    assert found.kind == "group" and found.represents == "add"
    assert [op.place.node for op in found.b] == ["add__0", "add__1"]
    assert [len(op.takes) for op in found.a] == [2, 2]
    assert said(paired(lists.graph("0-optimizer"), lists.graph("0-optimizer"))) == Counter(
        [("same", frozenset(["foreach"]), frozenset(["foreach"]))]
    )


def test_a_weight_gradient_that_is_computed_transposed_is_the_same_product() -> None:
    # given (xᵀ g)ᵀ and gᵀ x, both the gradient of w
    one, other = Builder("backward"), Builder("backward")
    for build in (one, other):
        build.given("x", "saved x", (8, 4))
        build.given("g", "gradient output 0", (8, 2))
    one.op("t", "x", shape=(4, 8))
    one.op("mm", "t_0", "g", shape=(4, 2))
    one.op("t", "mm_1", shape=(2, 4))
    other.op("t", "g", shape=(2, 8))
    other.op("mm", "t_0", "x", shape=(2, 4))
    one.bind("t_2", "gradient w")
    other.bind("mm_1", "gradient w")
    # when
    found = paired(one.graph("0-backward"), other.graph("0-backward"))
    # then
    (product,) = [pair for pair in found if pair.represents == "mm"]
    assert product.kind == "same" and "data flow" in product.by


@pytest.mark.slow
def test_time_grows_with_the_size_and_not_with_its_square() -> None:
    def seconds(blocks: int) -> float:
        sides = [
            ops_of([Executed(graph, 0) for graph in transformer(blocks, apart=apart, told=False)])
            for apart in (False, True)
        ]
        begun = time.process_time()
        pair_ops(*sides)
        return time.process_time() - begun

    small, large = (
        min(seconds(10) for _ in range(3)),
        min(seconds(80) for _ in range(2)),
    )  # eight times as many
    assert large < 30
    assert large < 30 * small
