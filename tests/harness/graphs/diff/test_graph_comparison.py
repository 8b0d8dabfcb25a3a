"""What is said of two runs' graphs, and how a step is put together from what was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import GraphsNotFound
from numdrift.harness.graphs.diff.difference_record import Diff, GraphPlace, OpCount
from numdrift.harness.graphs.diff.graph_comparison import compare_graphs
from numdrift.harness.graphs.run_graphs import graphs_of
from numdrift.harness.records.tools.graph_record import Cut, Graph, Node
from numdrift.harness.runs.recorded_run import load_run

from ..samples import sample_compile_backward, sample_compile_forward, sample_lazy_backward, write_run
from .building import Builder, compared, recorded


def count_of(diff: Diff, op: str) -> tuple[int, int]:
    (found,) = [(one.a, one.b) for one in diff.counts if one.op == op]
    return found


def test_the_founding_case_is_the_first_answer(tmp_path: Path) -> None:
    # given
    pre, post = sample_compile_backward()
    # when
    diff = compared(tmp_path, [sample_lazy_backward()], [pre, post])
    # then
    assert diff.answers[0] == (
        "lazy keeps tanh_backward whole (once in the backward), and compile decomposes it into mul, sub, mul."
    )
    (group,) = [pair for pair in diff.pairs if pair.kind != "same"]
    assert (group.kind, group.what, group.phase, group.module) == (
        "group", "aten.tanh_backward", "backward", "net.1",
    )  # fmt: skip
    assert group.a == (GraphPlace("0-backward-pre", "tanh_backward"),)
    assert [place.node for place in group.b] == ["mul", "sub", "mul_1"]
    assert {pair.what for pair in diff.pairs if pair.kind == "same"} == {
        "aten.mm", "aten.sum", "aten.permute", "aten.view",
    }  # fmt: skip
    assert diff.post_changed is None


def test_the_answer_names_the_side_that_keeps_the_op(tmp_path: Path) -> None:
    a = recorded(tmp_path, "compile", sample_compile_backward())
    b = recorded(tmp_path, "cpu", [replace(sample_lazy_backward(), cut=None)])
    assert compare_graphs(a, b).answers[0].startswith("cpu keeps tanh_backward whole (once in the backward)")


def test_a_graph_that_runs_twice_counts_twice(tmp_path: Path) -> None:
    # given SAM: compile runs one backward graph twice, lazy records both of its own
    lazy = sample_lazy_backward()
    second = replace(lazy, name="0-backward-2-pre", hash="other")
    a = recorded(tmp_path, "lazy", [lazy, second])
    twice = [(0, "0-forward", "", None), (0, "0-backward", "", None)] * 2
    b = recorded(tmp_path, "compile", [sample_compile_forward(), *sample_compile_backward()], executions=twice)
    # when
    diff = compare_graphs(a, b, phase="backward")
    # then
    assert "(twice in the backward)" in diff.answers[0]
    assert count_of(diff, "aten.mul") == (0, 4)
    assert count_of(diff, "aten.mm") == (6, 6)
    groups = [pair for pair in diff.pairs if pair.kind == "group"]
    assert [pair.a[0].graph for pair in groups] == ["0-backward-pre", "0-backward-2-pre"]
    assert diff.b.graphs == ("0-forward-pre", "0-backward-pre")
    assert (diff.b.graphs_in_step, diff.b.nodes) == (4, 2 * (5 + 12))


def test_graphs_of_an_earlier_step_are_those_of_the_step_that_runs_them(tmp_path: Path) -> None:
    # given graphs that step 1 executes again
    runs = [(step, "0-backward", "", None) for step in (0, 1, 1)]
    a = recorded(tmp_path, "lazy", [sample_lazy_backward()], executions=runs)
    b = recorded(tmp_path, "compile", sample_compile_backward(), executions=runs)
    # when, then
    assert compare_graphs(a, b).a.step == 0
    later = compare_graphs(a, b, step=1)
    assert (later.a.step, later.a.graphs_in_step, count_of(later, "aten.tanh_backward")) == (1, 2, (2, 0))
    with pytest.raises(GraphsNotFound, match="no graph of step 7: it has graphs of steps 0, 1"):
        compare_graphs(a, b, step=7)


def test_steps_that_have_nothing_in_common_are_refused(tmp_path: Path) -> None:
    other = [(3, "0-backward", "", None)]
    lazy = recorded(tmp_path, "lazy", [replace(sample_lazy_backward(), step=3)], executions=other)
    with pytest.raises(GraphsNotFound, match=r"graphs of step 3, and .* has graphs of step 0"):
        compare_graphs(lazy, recorded(tmp_path, "compile", sample_compile_backward()))


def test_an_unknown_phase_is_refused_with_what_is_there(tmp_path: Path) -> None:
    sides = [recorded(tmp_path, mode, [sample_lazy_backward()]) for mode in ("one", "two")]
    with pytest.raises(GraphsNotFound, match="phase backwards: did you mean 'backward'"):
        compare_graphs(*sides, phase="backwards")


def test_ops_outside_of_compiled_regions_are_compared_too(tmp_path: Path) -> None:
    # given a loss that eager has in its forward, and compile in a stream of its own
    def loss(stage: str, name: str) -> Graph:
        build = Builder("forward")
        build.given("w", "parameter w")
        build.op("mse_loss", build.op("tanh", "w"))
        return build.graph(name, stage)

    region = Builder("forward")
    region.given("w", "parameter w")
    region.op("mm", "w", "w")
    eager = replace(loss("pre", "0-forward"), nodes=(*region.nodes, *loss("pre", "0-forward").nodes))
    # when
    diff = compared(tmp_path, [eager], [region.graph("0-forward"), loss("stream", "0-forward-2")])
    # then
    assert {pair.kind for pair in diff.pairs} == {"same"}
    assert diff.b.graphs == ("0-forward-pre", "0-forward-2-stream")
    assert diff.b.graphs_in_step == 1, "a stream is not a graph that was compiled"


def test_what_cuts_the_graphs_is_said_for_each_side(tmp_path: Path) -> None:
    # given
    cuts = [Cut("mark_step"), Cut("fallback", "aten.lerp"), Cut("fallback", "aten.lerp"), Cut("item")]
    runs = [(0, "0-backward", "", cut) for cut in cuts]
    a = recorded(tmp_path, "lazy", [sample_lazy_backward()], executions=runs)
    b = recorded(tmp_path, "compile", sample_compile_backward())
    # when
    diff = compare_graphs(a, b)
    # then
    assert diff.a.cuts == {"fallback aten.lerp": 2, "item": 1, "mark_step": 1}
    assert (diff.a.graphs_in_step, diff.b.graphs_in_step, diff.b.cuts) == (4, 1, {})
    assert (
        "In step 0, lazy executes 4 graphs (cut by fallback aten.lerp (twice), item (once), mark_step (once)) and "
        "compile executes 1 graph."
    ) in diff.answers


def test_an_op_that_fell_back_is_not_said_to_be_missing(tmp_path: Path) -> None:
    # given a lazy graph that a lerp has cut, so that it is in none
    runs = [(0, "0-forward", "", Cut("fallback", "aten.lerp.Scalar"))]
    a = recorded(tmp_path, "cpu", [chain("lerp_")])
    b = recorded(tmp_path, "lazy", [chain()], executions=runs)
    # when, then
    answers = compare_graphs(a, b).answers
    assert answers[0] == "lazy runs lerp outside of its graphs, and cpu has it once in the forward."
    assert not [answer for answer in answers if answer.startswith("Only")]


def test_a_count_of_steps_is_outside_of_lazy_graphs(tmp_path: Path) -> None:
    # given an optimizer that counts its steps in a tensor of its own, and lazy graphs without it
    build = Builder("optimizer")
    build.given("w", "parameter w")
    build.given("g", "gradient w")
    build.given("step", "state w.step", ())
    build.op("add_", "w", "g")
    without = build.graph("0-optimizer")
    build.op("add_", "step", shape=())
    a = recorded(tmp_path, "cpu", [build.graph("0-optimizer")])
    for mode, cut in (("lazy", Cut("mark_step")), ("compile", None)):
        b = recorded(tmp_path, mode, [without], executions=[(0, "0-optimizer", "", cut)])
        said = {
            "lazy": "lazy runs add outside of its graphs, and cpu has it once in the optimizer.",
            "compile": "Only cpu has add (once) in the optimizer.",
        }
        assert compare_graphs(a, b).answers[0] == said[mode]


def test_ops_that_both_have_left_over_are_said_to_be_unpaired(tmp_path: Path) -> None:
    sides = []
    for name, shape in (("w", (8, 16)), ("v", (3, 5, 7))):
        build = Builder("forward")
        build.op("batch_norm", build.given(name, f"parameter {name}", shape), shape=shape)
        sides.append(build.graph("0-forward"))
    diff = compared(tmp_path, [sides[0]], [sides[1]])
    assert "batch_norm (once on each side) could not be paired." in diff.answers


def test_only_generated_kernels_of_several_computing_nodes_fuse(tmp_path: Path) -> None:
    # given a kernel of five nodes of which one is a view, one of a sum and a view, and library calls; run twice
    pre, post = sample_compile_backward()
    stream = Builder("optimizer")
    stream.op("add_", stream.given("w", "parameter w"))
    ran = [(0, "0-backward", "", None)] * 2 + [(0, "0-optimizer", "", None)]
    b = recorded(tmp_path, "compile", [pre, post, stream.graph("0-optimizer", "stream")], executions=ran)
    torchscript = replace(
        sample_lazy_backward(), name="0-backward-post", stage="post", pre="0-backward-pre",
        nodes=(Node("group", "TensorExprGroup", "prim", covers=("mm", "tanh_backward"), body=pre.nodes[:2]),),
    )  # fmt: skip
    a = recorded(tmp_path, "lazy", [sample_lazy_backward(), torchscript])
    # when
    answers = compare_graphs(a, b).answers
    # then
    (fuses,) = [answer for answer in answers if "fuses" in answer]
    assert fuses == (
        "compile fuses 8 of 16 computing nodes of its compiled graphs into 2 kernels; "
        "its post graphs have 10 kernels and library calls in total."
    )


def chain(*ops: str, phase: str = "forward", **fields: Any) -> Graph:
    """Ops that take each other's values, with a matrix product before and after."""
    build = Builder(phase)
    build.given("w", "parameter w")
    made = build.op("mm", "w", "w")
    for op in ops:
        made = build.op(op, made, **fields)
    build.op("mm", made, "w")
    return build.graph(f"0-{phase}")


def test_casts_of_one_side_are_told_with_their_places(tmp_path: Path) -> None:
    # given two casts in A, one of them also in B
    def with_casts(*dtypes: str) -> Graph:
        build = Builder("forward")
        made = build.given("w", "parameter w")
        for dtype in dtypes:
            made = build.op("_to_copy", made, dtype=dtype)
        build.op("relu", made, dtype=dtypes[-1])
        return build.graph("0-forward")

    # when
    diff = compared(tmp_path, [with_casts("bfloat16", "float32")], [with_casts("bfloat16")])
    # then
    (cast,) = diff.casts
    assert (cast.side, cast.phase, cast.from_dtype, cast.to_dtype, cast.count) == (
        "a", "forward", "bfloat16", "float32", 1,
    )  # fmt: skip
    assert cast.places == (GraphPlace("0-forward-pre", "_to_copy_1"),)
    assert "Only lazy casts bfloat16 to float32 in the forward (once)." in diff.answers


def test_an_op_that_makes_another_float_is_a_cast_whatever_it_is_called(tmp_path: Path) -> None:
    diff = compared(tmp_path, [chain("softmax", dtype="float64")], [chain("softmax")])
    assert [(one.side, one.from_dtype, one.to_dtype) for one in diff.casts] == [("a", "float32", "float64")]


def test_views_and_fills_are_counted_but_make_no_answer(tmp_path: Path) -> None:
    diff = compared(tmp_path, [chain("t_copy", "view_copy", "detach_copy", "relu")], [chain("relu", "clone")])
    assert diff.answers == ["lazy and compile compute the same ops, apart from views, fills and bookkeeping."]
    assert OpCount("forward", "aten.permute", 1, 0, "view") in diff.counts
    assert {pair.role for pair in diff.pairs if pair.kind.startswith("only")} == {"view", "bookkeeping"}


COPY = "A copy changes no number, but the library may compute an op differently if its input has a different layout."


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (("t_copy",), ("t",), f"lazy copies the input of mm in the forward (once) with t_copy, and compile does not. {COPY}"),
        (("t",), ("t", "clone"),
         f"compile copies the input of mm in the forward (once) with clone, and lazy does not. {COPY}"),
        (("t_copy", "view_copy"), ("t", "view"),
         f"lazy copies the input of mm in the forward (once) with t_copy, and compile does not. {COPY}"),
        (("t_copy",), ("t", "clone"), None),  # both lay it out anew
        (("view_copy",), ("clone",), None),  # nothing lies otherwise
        (("t_copy", "relu"), ("t", "relu"), None),  # elementwise: the order of the elements changes nothing
    ],
)  # fmt: skip
def test_a_copy_before_a_product_is_told(a: Sequence[str], b: Sequence[str], said: str | None, tmp_path: Path) -> None:
    answers = compared(tmp_path, [chain(*a)], [chain(*b)]).answers
    assert [one for one in answers if " copies " in one] == ([] if said is None else [said])


def test_ops_of_one_side_come_before_casts_and_integers_after(tmp_path: Path) -> None:
    # given
    a, b = Builder("forward"), Builder("forward")
    for build in (a, b):
        build.given("w", "parameter w")
        build.op("mm", "w", "w")
    a.op("argmax", "w", dtype="int64")
    a.op("_to_copy", "w", dtype="float64")
    a.op("erfinv", "w")
    # when
    diff = compared(tmp_path, [a.graph("0-forward")], [b.graph("0-forward")])
    # then
    assert [answer.split("(")[0] for answer in diff.answers] == [
        "Only lazy has erfinv ",
        "Only lazy casts float32 to float64 in the forward ",
        "Only lazy has argmax ",
    ]


def apart(op: str, *parts: tuple[str, Sequence[int]]) -> tuple[Graph, Graph]:
    """A graph with an op of two inputs, and one with its parts: each takes what earlier parts made (by their number),
    -1 and -2 are the op's inputs."""
    sides = []
    for whole in (True, False):
        build = Builder("backward")
        given = [build.given(f"v{one}", f"parameter v{one}") for one in (1, 2)]
        inputs = [build.op("mm", one, one) for one in given]
        if whole:
            made = build.op(op, *inputs)
        else:
            values: list[str] = []
            for part, takes in parts:
                taken = [values[one] if one >= 0 else inputs[-1 - one] for one in takes]
                values.append(build.op(part, *taken, original=f"aten.{op}", group=op))
            made = values[-1]
        build.op("mm", made, given[0])
        sides.append(build.graph("0-backward"))
    return sides[0], sides[1]


def test_what_cancels_comes_before_other_decompositions(tmp_path: Path) -> None:
    # given one graph with all of them, the structural first
    cases = {
        "linear": apart("linear", ("permute", [-2]), ("mm", [-1, 0]), ("add", [1, -2])),
        "mean_square": apart("mean_square", ("mul", [-1, -1]), ("sum", [0])),
        "mse_loss_backward": apart("mse_loss_backward", ("sub", [-1, -2]), ("mul", [0, -1])),
        "tanh_backward": apart("tanh_backward", ("mul", [-1, -1]), ("sub", [0]), ("mul", [-2, 1])),
    }
    sides: tuple[list[Graph], list[Graph]] = ([], [])
    for number, graphs in enumerate(cases.values()):
        for side, graph in zip(sides, graphs, strict=True):
            name = f"0-backward-{number}-pre"
            values = {
                key: replace(one, binding=f"{one.binding}{number}" if one.binding else "")
                for key, one in graph.values.items()
            }
            side.append(replace(graph, name=name, values=values))
    # when
    diff = compared(tmp_path, *sides)
    # then
    assert [answer.split()[2] for answer in diff.answers] == [
        "tanh_backward", "mse_loss_backward", "mean_square", "linear",
    ]  # fmt: skip


def compiled(linear: bool, *, kernel: str = "auto tmp0 = a * b;", name: str = "cpp_fused_tanh_0") -> list[Graph]:
    """Pre and post graph of a linear layer and a tanh, the layer as one node or as permute and addmm."""
    build = Builder("forward")
    given = [build.given("w", "parameter w"), build.given("b", "parameter b"), build.given("x", "input 0")]
    if linear:
        made = build.op("linear", given[2], given[0], given[1])
    else:
        turned = build.op("permute", given[0])
        made = build.op("addmm", given[1], given[2], turned)
    build.op("tanh", made)
    pre = build.graph("0-forward")
    extern = Node("addmm", "addmm", phase="forward", code=f"extern_kernels.addmm({made})")
    code = f"# Source Nodes: {made}\n{name}(float* buf{len(pre.nodes)}) {{\n  // {made}\n  {kernel}\n}}"
    fused = Node(name, name, "inductor", phase="forward", code=code, covers=(build.nodes[-1].name,))
    return [pre, replace(pre, name="0-forward-post", stage="post", pre=pre.name, nodes=(extern, fused))]


def both_compiled(tmp_path: Path, a: list[Graph], b: list[Graph]) -> Diff:
    spec = "lin=compile,decompose.linear=off"
    runs = [write_run(tmp_path, mode, graphs) for mode, graphs in (("compile", a), ("lin", b))]
    manifest = runs[1] / "run.json"
    manifest.write_text(manifest.read_text().replace('"spec": "lin"', f'"spec": "{spec}"'))
    return compare_graphs(*(graphs_of(load_run(run)) for run in runs))


def test_an_override_that_the_compiler_undoes_changes_the_pre_graph_alone(tmp_path: Path) -> None:
    diff = both_compiled(tmp_path, compiled(False), compiled(True, name="cpp_fused_linear_tanh_0"))
    assert diff.post_changed is False
    assert diff.answers[0] == (
        "The pre graphs differ (lin has linear where compile has addmm), but the post graphs are the same."
    )
    assert [pair.kind for pair in diff.pairs if pair.what == "aten.addmm" or pair.what == "aten.linear"] == ["replaced"]


def test_kernels_that_compute_something_else_are_named(tmp_path: Path) -> None:
    diff = both_compiled(tmp_path, compiled(False), compiled(False, kernel="auto tmp0 = fma(a, b, c);"))
    assert diff.post_changed is True
    assert diff.answers[0] == (
        "The pre graphs are the same, but the post graphs differ: "
        "only compile has cpp_fused_tanh_0 (once); only lin has cpp_fused_tanh_0 (once)."
    )


def test_sides_of_one_mode_are_told_apart(tmp_path: Path) -> None:
    a = recorded(tmp_path, "lazy", [sample_lazy_backward()])
    other = recorded(tmp_path, "lazy", [chain("erfinv", phase="backward")], investigation="other")
    assert all("Only A has" in one or "Only B has" in one for one in compare_graphs(a, other).answers[:2])


def test_the_json_of_a_difference_holds_only_plain_values(tmp_path: Path) -> None:
    diff = compared(tmp_path, [sample_lazy_backward()], sample_compile_backward())
    data = json.loads(json.dumps(diff.to_json()))
    assert data["answers"] == list(diff.answers)
    assert data["pairs"][0]["a"][0] == {"graph": "0-backward-pre", "node": "mm"}
    assert set(data) == {"a", "b", "answers", "counts", "pairs", "casts", "post_changed"}
