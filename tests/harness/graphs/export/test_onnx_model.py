from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.graphs.culprit_marks import Mark
from numdrift.harness.graphs.export.onnx_model import to_onnx
from numdrift.harness.records.tools.graph_record import Cut, Graph, Node, Value

from ..samples import (
    TANH_BACKWARD_CODE,
    node,
    sample_compile_backward,
    sample_compile_forward,
    sample_lazy_backward,
)

FLOAT = Value("float32", (2, 3))
KERNEL = "cpp_fused_mul_sub_sum_tanh_backward_view_1"


def graph_of(*nodes: Node, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = (), **fields: Any) -> Graph:
    """A graph of these nodes, all of whose values are 2 by 3 floats unless said otherwise."""
    names = [*inputs, *(name for one in nodes for name in (*one.inputs, *one.outputs)), *outputs]
    values = dict.fromkeys(names, FLOAT) | fields.pop("values", {})
    given = {"name": "g", "mode": "cpu", "stage": "pre", "phase": "forward", "step": 0, **fields}
    return Graph(nodes=nodes, values=values, inputs=inputs, outputs=outputs, **given)


def metadata(proto: Any) -> dict[str, str]:
    return {one.key: one.value for one in proto.metadata_props}


def named(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    (found,) = [one for one in model.graph.node if one.name == name]
    assert isinstance(found, onnx.NodeProto)
    return found


def attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    return {one.name: onnx.helper.get_attribute_value(one) for one in proto.attribute}


def edges(nodes: Any, inputs: str, outputs: str) -> list[tuple[str, list[str], list[str]]]:
    """Each node with what it takes and makes; "" is ONNX's word for nothing."""
    return [(one.name, [*getattr(one, inputs)], [*filter(None, getattr(one, outputs))]) for one in nodes]


# Any graph at all

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SIZES = st.one_of(st.integers(0, 2**40), st.sampled_from(["s0", "s0*2", ""]))
DTYPES = ["float32", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn", "complex32", "quint4x2", ""]
VALUES = st.builds(Value, st.sampled_from(DTYPES), st.lists(SIZES, max_size=4).map(tuple), st.text(max_size=5))
PLAIN = st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.none(), st.integers(2**63, 2**70))
ATTRIBUTES = st.dictionaries(NAMES, st.one_of(PLAIN, st.lists(PLAIN, max_size=3)), max_size=3)


@st.composite
def some_graph(draw: st.DrawFn, *, deep: bool = True) -> Graph:
    """A graph in which every value is made before it is taken, and every shape is known."""
    odd = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
    names = (f"{odd}{number}" for number in count())
    known = [next(names) for _ in range(draw(st.integers(0, 3)))]
    inputs = tuple(known)
    nodes = []
    for _ in range(draw(st.integers(0, 5))):
        taken = draw(st.lists(st.sampled_from(known), max_size=4)) if known else []
        made = [next(names) for _ in range(draw(st.integers(0, 2)))]
        nodes.append(draw(some_node(next(names), tuple(taken), tuple(made), known, deep=deep)))
        known += made
    outputs = tuple(draw(st.lists(st.sampled_from(known), max_size=3))) if known else ()
    return Graph(
        name=draw(NAMES), mode="compile", stage="post", phase="forward+backward", step=draw(st.integers(0, 9)),
        nodes=tuple(nodes), values={name: draw(VALUES) for name in known}, inputs=inputs, outputs=outputs,
        notes=tuple(draw(st.lists(st.text(max_size=5), max_size=2))), code=draw(st.text(max_size=30)),
    )  # fmt: skip


@st.composite
def some_node(
    draw: st.DrawFn,
    name: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    known: list[str],
    *,
    deep: bool,
) -> Node:
    body = draw(some_graph(deep=False)).nodes if deep and draw(st.booleans()) else ()
    return Node(
        name=name, op=draw(NAMES), domain=draw(st.sampled_from(["aten", "inductor", "ai.onnx", "", "my::ns"])),
        overload=draw(st.sampled_from(["", "Tensor", "out"])), phase="forward", inputs=inputs, outputs=outputs,
        module=draw(st.sampled_from([None, "", "net.0"])), source=draw(st.text(max_size=8)),
        input_names=tuple(draw(st.lists(st.text(max_size=4), max_size=4))), attributes=draw(ATTRIBUTES),
        covers=tuple(draw(st.lists(NAMES, max_size=3))), code=draw(st.text(max_size=9)), body=body,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(some_graph())
def test_every_graph_of_known_shapes_is_a_model_that_the_checker_takes_and_keeps_its_edges(
    graph: Graph,
) -> None:
    model = onnx.load_model_from_string(to_onnx(graph).SerializeToString())
    onnx.checker.check_model(model)
    assert edges(model.graph.node, "input", "output") == edges(graph.nodes, "inputs", "outputs")
    assert [one.name for one in model.graph.input] == list(graph.inputs)
    assert [one.name for one in model.graph.output] == list(dict.fromkeys(graph.outputs))
    assert [len(one.node) for one in model.functions] == [len(one.body) for one in graph.nodes if one.body]


@settings(max_examples=40, deadline=None)
@given(some_graph(), st.randoms(use_true_random=False))
def test_nodes_in_any_order_become_a_model_that_the_checker_takes(graph: Graph, random: Any) -> None:
    # given a graph whose nodes stand in no order
    nodes = list(graph.nodes)
    random.shuffle(nodes)
    # when it is exported
    model = to_onnx(replace(graph, nodes=tuple(nodes)))
    # then every value is made before it is taken
    onnx.checker.check_model(model)
    assert sorted(one.name for one in model.graph.node) == sorted(one.name for one in graph.nodes)


@settings(max_examples=40, deadline=None)
@given(some_graph())
def test_a_value_that_is_made_several_times_keeps_its_taker_at_the_right_maker(graph: Graph) -> None:
    # given an op in place after every node: it takes a value and makes it again
    nodes: list[Node] = []
    for number, one in enumerate(graph.nodes):
        again = [Node(f"again {number} {at}", "add_", inputs=(name,), outputs=(name,)) for at, name in
                 enumerate(one.outputs)]  # fmt: skip
        nodes += [one, *again]
    # when it is exported
    model = to_onnx(replace(graph, nodes=tuple(nodes)))
    onnx.checker.check_model(model)
    # then who takes a value takes it from the node that made it last, as a program would
    makers: dict[str, str] = dict.fromkeys(graph.inputs, "")
    expected = []
    for one in nodes:
        expected.append((one.name, [makers[name] for name in one.inputs]))
        makers |= dict.fromkeys(one.outputs, one.name)
    made = {name: one.name for one in model.graph.node for name in one.output}
    assert [(one.name, [made.get(name, "") for name in one.input]) for one in model.graph.node] == expected


# The samples


@pytest.mark.parametrize(
    "graph",
    [sample_compile_forward(), *sample_compile_backward(), sample_lazy_backward()],
    ids=lambda graph: f"{graph.mode} {graph.name}",
)
def test_the_graphs_of_a_training_pass_the_checker_with_types_on_every_edge(graph: Graph) -> None:
    model = to_onnx(graph)
    onnx.checker.check_model(model)
    typed = {one.name for one in (*model.graph.input, *model.graph.output, *model.graph.value_info)}
    assert typed >= {name for one in model.graph.node for name in (*one.input, *one.output)}
    for one in (*model.graph.input, *model.graph.value_info):
        shape = [size.dim_value for size in one.type.tensor_type.shape.dim]
        assert shape == list(graph.values[one.name].shape or ())
        assert one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_a_node_says_where_it_comes_from_and_what_its_arguments_are_called() -> None:
    pre, _ = sample_compile_backward()
    one = named(to_onnx(pre), "mul_1")
    told = metadata(one)
    assert (one.op_type, one.domain, one.overload, one.doc_string) == ("mul", "aten", "Tensor", "train.py:19")
    assert told["input_names"] == "['self', 'other']"
    assert told["original"] == "aten.tanh_backward"
    assert (told["module"], told["phase"], told["sequence"]) == ("net.1", "backward", "1")
    assert "in forward" in told["stack trace"]


def test_inputs_and_outputs_say_what_they_are_to_the_script() -> None:
    pre, _ = sample_compile_backward()
    model = to_onnx(pre)
    said = {one.name: one.doc_string for one in (*model.graph.input, *model.graph.output)}
    assert said["primals_4"] == "parameter net.2.weight"
    assert said["mm_2"] == "gradient net.0.weight"
    assert metadata(model.graph.input[0])["binding"] == "input 0"


def test_a_kernel_opens_as_the_function_of_the_ops_in_it_with_types_of_its_own() -> None:
    _, post = sample_compile_backward()
    model = to_onnx(post)
    caller = named(model, KERNEL)
    called = [
        one
        for one in model.functions
        if (one.domain, one.name, one.overload) == (caller.domain, caller.op_type, caller.overload)
    ]
    assert len(called) == 1
    assert [one.op_type for one in called[0].node] == ["mul", "sub", "mul", "sum", "view"]
    assert list(called[0].input) == list(caller.input) == ["mm", "tanh"]
    assert list(called[0].output) == list(caller.output) == ["mul_1", "view_1"]
    assert {one.name for one in called[0].value_info} >= {
        "mm",
        "tanh",
        "mul",
        "sub",
        "mul_1",
        "sum_2",
        "view_1",
    }
    assert metadata(caller)["code"] == TANH_BACKWARD_CODE
    assert metadata(caller)["covers"] == "mul, sub, mul_1, sum_2, view_1"


def test_a_culprit_is_marked_on_the_node_and_inside_of_its_kernel() -> None:
    _, post = sample_compile_backward()
    mark = Mark("aten.tanh_backward", {"max_ulp": 724.25, "share": 0.97}, "it drifts")
    model = to_onnx(post, {KERNEL: mark, "sub": mark})
    caller = named(model, KERNEL)
    assert caller.op_type == "⚠ mul_sub_sum_tanh…_1"
    assert attributes(caller) == {"drift_max_ulp": 724.25, "drift_share": b"0.97"}
    assert (metadata(caller)["culprit"], metadata(caller)["drift"]) == ("aten.tanh_backward", "it drifts")
    marked = next(one for one in model.functions if one.name == caller.op_type)
    assert [one.op_type for one in marked.node] == ["mul", "⚠ sub", "mul", "sum", "view"]
    onnx.checker.check_model(model)


def test_the_model_says_what_it_is_and_what_cut_it() -> None:
    model = to_onnx(replace(sample_lazy_backward(), notes=("values are guessed",)))
    told = metadata(model)
    assert (told["mode"], told["stage"], told["phase"], told["hash"]) == ("lazy", "pre", "backward", "1a2b3c")
    assert told["cut by"] == "mark_step train.py:33"
    assert told["note"] == "values are guessed"
    assert model.ir_version == 10
    assert [(one.domain, one.version) for one in model.opset_import] == [("aten", 1)]


# What is hard


def test_symbolic_sizes_numbers_and_dtypes_that_onnx_lacks_keep_what_is_known() -> None:
    values = {
        "x": Value("complex32", ("s0", 4)), "y": Value("float64", ()), "z": Value("float32", (2,)),
    }  # fmt: skip
    graph = graph_of(node("f", "y", {"a": "x"}), node("f", "z", {"a": "y"}), outputs=("z",), values=values)
    model = to_onnx(graph)
    onnx.checker.check_model(model)
    x, y = model.graph.input[0], model.graph.value_info[0]
    assert [(one.dim_param, one.dim_value) for one in x.type.tensor_type.shape.dim] == [("s0", 0), ("", 4)]
    assert x.type.tensor_type.elem_type == onnx.TensorProto.UNDEFINED
    assert metadata(x)["dtype"] == "complex32"
    assert (len(y.type.tensor_type.shape.dim), y.type.tensor_type.elem_type) == (0, onnx.TensorProto.DOUBLE)


def test_shapes_that_are_not_known_are_noted_and_the_rest_is_there() -> None:
    graph = graph_of(node("f", "y", {"a": "x"}), outputs=("y",), values={"x": Value(), "y": Value("float32")})
    model = onnx.load_model_from_string(to_onnx(graph).SerializeToString())
    assert metadata(model)["note"] == "values with unknown shapes: x, y"
    assert edges(model.graph.node, "input", "output") == [("y", ["x"], ["y"])]
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)


def test_values_from_nowhere_become_inputs_and_outputs_from_nowhere_are_noted() -> None:
    model = to_onnx(graph_of(node("f", "y", {"a": "x", "b": "ghost"}), outputs=("y", "lost")))
    onnx.checker.check_model(model)
    assert [one.name for one in model.graph.input] == ["x", "ghost"]
    assert [one.name for one in model.graph.output] == ["y"]
    assert "ghost" in metadata(model)["note"]
    assert "lost" in metadata(model)["note"]


def test_nodes_that_need_each_other_are_exported_with_a_note() -> None:
    model = to_onnx(graph_of(node("f", "a", {"x": "b"}), node("f", "b", {"x": "a"}), outputs=("b",)))
    assert "no valid order" in metadata(model)["note"]
    assert [one.name for one in model.graph.node] == ["a", "b"]


def test_an_op_with_a_dot_or_of_onnx_itself_is_not_taken_for_another() -> None:
    nodes = (
        node("add.Tensor", "a", {"x": "x"}, domain="ai.onnx"),
        node("Relu", "b", {"x": "a"}, domain=""),
    )
    model = to_onnx(graph_of(*nodes, outputs=("b",)))
    onnx.checker.check_model(model)
    assert [one.op_type for one in model.graph.node] == ["add_Tensor", "Relu"]
    assert [metadata(one)["op"] for one in model.graph.node] == ["ai.onnx.add.Tensor", "Relu"]


def test_a_list_argument_repeats_its_name() -> None:
    cat = Node("c", "cat", inputs=("x", "y", "x"), input_names=("tensors",) * 3, outputs=("c",))
    model = to_onnx(graph_of(cat, inputs=("x", "y"), outputs=("c",)))
    assert metadata(model.graph.node[0])["input_names"] == "['tensors', 'tensors', 'tensors']"
    assert list(model.graph.node[0].input) == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3), (-(2**63), -(2**63)), (2**63, str(2**63).encode()), (True, 1), (0.5, 0.5), (1e-05, b"1e-05"),
        (1e300, b"1e+300"), (float("inf"), float("inf")), ("none", b"none"), (None, b"None"), ([1, 2], [1, 2]),
        ([], []), ([1, 2.5], b"[1, 2.5]"), ([[1], [2]], b"[[1], [2]]"), ([0.5, 0.1], b"[0.5, 0.1]"),
        ([None, 1], b"[None, 1]"), ("\ud800", b"?"),
    ],
)  # fmt: skip
def test_an_attribute_keeps_its_value_or_becomes_the_text_of_it(value: Any, expected: Any) -> None:
    model = to_onnx(graph_of(Node("y", "f", inputs=("x",), outputs=("y",), attributes={"a": value})))
    onnx.checker.check_model(model)
    assert attributes(model.graph.node[0])["a"] == expected


def test_a_kernel_that_runs_twice_has_its_source_once_and_a_function_each() -> None:
    def kernel(number: int, taken: str) -> Node:
        made = f"y{number}"
        body = (Node(f"inner{number}", "mul", inputs=(taken, taken), outputs=(made,)),)
        return Node(
            f"k#{number}", "cpp_fused_mul_0", "inductor", inputs=(taken, taken), outputs=(made,), body=body,
            code="source " * 9,
        )  # fmt: skip

    model = to_onnx(graph_of(kernel(0, "x"), kernel(1, "y0"), outputs=("y1",)))
    onnx.checker.check_model(model)
    assert [metadata(one)["code"] for one in model.graph.node] == ["source " * 9, "same code as k#0"]
    assert [one.op_type for one in model.graph.node] == ["fused_mul_0"] * 2
    assert [(one.overload, one.node[0].name) for one in model.functions] == [
        ("k#0", "inner0"),
        ("k#1", "inner1"),
    ]


def test_a_long_source_comes_in_parts_that_netron_shows_whole() -> None:
    code = "".join(f"line {number};\n" for number in range(600)) + "x" * 5000
    model = to_onnx(graph_of(Node("k", "k", inputs=("x",), outputs=("y",), code=code), code=code))
    for proto in (model.graph.node[0], model):
        parts = [value for key, value in metadata(proto).items() if key.startswith("code ")]
        assert "".join(parts) == code
        assert all(len(part) < 2000 for part in parts)


def test_an_empty_graph_is_a_model() -> None:
    onnx.checker.check_model(to_onnx(graph_of(inputs=())))


def test_a_cut_by_a_fallback_names_its_op() -> None:
    cut = Cut("fallback", "aten.lerp.Scalar", "train.py:9")
    assert metadata(to_onnx(graph_of(cut=cut)))["cut by"] == "fallback aten.lerp.Scalar train.py:9"
