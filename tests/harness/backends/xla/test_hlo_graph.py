"""What torch_xla and XLA write of a graph is read as graphs of the record, with what is known of the calls that made it: IR,
and HLO with its fusions."""

from __future__ import annotations

from numdrift.harness.backends.deferred_calls import FollowedCall, KnownValues, Operand
from numdrift.harness.backends.followed_graph import FollowedGraph, MadeNodes
from numdrift.harness.backends.xla.hlo_graph import post_graph
from numdrift.harness.backends.xla.hlo_module import read_hlo
from numdrift.harness.backends.xla.xla_ir import cut_of, executed_in
from numdrift.harness.backends.xla.xla_values import by_value, outputs_of, returned
from numdrift.harness.records.tools.graph_record import Cut, Graph, Node, Value

SCRIPT = "/home/me/train.py"

# `y = tanh(x); y.backward(g)` of a script, as torch_xla 2.9 writes it, without most of its technical attributes: calls 1
# and 2, each from a frame of its own on the line after its number
IR = """[ScheduleSyncTensorsGraph]
TensorsGraphInfo:
  sync (/site-packages/torch_xla/torch_xla.py:87)
  <module> (/home/me/train.py:17)

Root Hashes: (bd1b1da7, 9b3b6b62)

## BEGIN_GRAPH
IR {
  %0 = f32[4]{0} xla::device_data(), location=1@numdrift:2, xla_shape=f32[4]{0}
  %1 = f32[4]{0} aten::tanh(%0), location=1@numdrift:2, xla_shape=f32[4]{0}, ROOT=0
  %2 = f32[] xla::device_data(), location=2@numdrift:3, xla_shape=f32[]
  %3 = f32[] prim::Constant(), location=2@numdrift:3, xla_shape=f32[]
  %4 = f32[4]{0} aten::pow(%1, %3), location=2@numdrift:3, xla_shape=f32[4]{0}
  %5 = f32[4]{0} aten::rsub(%4, %2), scope=aten::rsub.1, location=2@numdrift:3, xla_shape=f32[4]{0}
  %6 = f32[4]{0} xla::device_data(), location=0@numdrift:1, xla_shape=f32[4]{0}
  %7 = f32[4]{0} aten::mul(%6, %5), scope=aten::mul.2, location=2@numdrift:3, xla_shape=f32[4]{0}, ROOT=1
}

Graph Hash: b3d5fa99

## END_GRAPH

"""


def instructions(metadata: str) -> str:
    """The module of it; `metadata` is what stands in it of an instruction, by type and line."""

    def of(op: str, line: int) -> str:
        return metadata.format(op=op, line=line)

    return f"""HloModule SyncTensorsGraph.9, is_scheduled=true, entry_computation_layout={{(f32[4]{{0}}, f32[], f32[4]{{0}})->(f32[4]{{0}}, f32[4]{{0}})}}

%fused_computation (param_0.1: f32[4], param_1.2: f32[4]) -> f32[4] {{
  %param_1.2 = f32[4]{{0}} parameter(1)
  %constant.1 = f32[] constant(1), {of("prim__Constant", 3)}
  %broadcast.7 = f32[4]{{0}} broadcast(%constant.1), dimensions={{}}, {of("aten__rsub", 3)}
  %param_0.1 = f32[4]{{0}} parameter(0)
  %multiply.7 = f32[4]{{0}} multiply(%param_0.1, %param_0.1), {of("aten__pow", 3)}
  %subtract.0 = f32[4]{{0}} subtract(%broadcast.7, %multiply.7), {of("aten__rsub", 3)}
  ROOT %multiply.6 = f32[4]{{0}} multiply(%param_1.2, %subtract.0), {of("aten__mul", 3)}
}}

ENTRY %SyncTensorsGraph.9 (p0.1: f32[4], p1.2: f32[], p2.3: f32[4]) -> (f32[4], f32[4]) {{
  %p0.1 = f32[4]{{0}} parameter(0), {of("xla__device_data", 2)}
  %p1.2 = f32[] parameter(1), {of("xla__device_data", 3)}
  %p2.3 = f32[4]{{0}} parameter(2), {of("xla__device_data", 1)}
  %tanh.3 = f32[4]{{0}} tanh(%p0.1), {of("aten__tanh", 2)}
  %subtract_multiply_fusion = f32[4]{{0}} fusion(%tanh.3, %p2.3), kind=kLoop, calls=%fused_computation, {of("aten__mul", 3)}
  %copy.1 = f32[4]{{0}} copy(%subtract_multiply_fusion)
  ROOT %tuple.1 = (f32[4]{{0}}, f32[4]{{0}}) tuple(%tanh.3, %copy.1)
}}
"""


MARKED = 'metadata={{op_type="{op}" op_name="{op}" source_file="numdrift" source_line={line}}}'
UNMARKED = 'metadata={{op_type="{op}" op_name="{op}"}}'


def known_calls() -> KnownValues:
    """The tensors x, y, g and the gradient of x are 11, 12, 13 and 14; g was brought to the device by call 0."""
    known = KnownValues(lambda tensor: None)
    vector = Value("float32", (4,))
    for call in (
        FollowedCall(0, 3, Node("", "_to_copy"), (Operand("self", None, vector),), made=[13], results=[vector]),
        FollowedCall(
            *(1, 3, Node("", "tanh", phase="forward", module="layers.1", source=f"{SCRIPT}:9", sequence=5)),
            operands=(Operand("self", 11, vector),),
            made=[12],
            results=[vector],
        ),
        FollowedCall(
            *(2, 3, Node("", "tanh_backward", phase="backward", module="layers.1", source=f"{SCRIPT}:9", sequence=5)),
            operands=(Operand("grad_output", 13, vector), Operand("output", 12, vector)),
            made=[14],
            results=[vector],
        ),
    ):
        known.calls[call.number] = call
        known.made(call)
    known.bindings |= {11: "parameter layers.0.weight", 14: "gradient layers.0.weight"}
    return known


def before() -> Graph:
    """The graph of the IR."""
    (executed,) = executed_in(IR)
    known = known_calls()
    outputs = outputs_of(executed, returned(MadeNodes.of(executed.nodes, known)))
    return FollowedGraph(executed.nodes, known, outputs, by_value).graph(3)


def test_ir_is_read_with_its_places_its_values_and_what_cut_it() -> None:
    (executed,) = executed_in(IR)
    assert (executed.hash, executed.roots) == ("b3d5fa99", ["bd1b1da7", "9b3b6b62"])
    assert cut_of(executed, SCRIPT) == Cut(
        "mark_step",
        source=f"{SCRIPT}:17",
        stack='  File "/home/me/train.py", line 17, in <module>\n'
        '  File "/site-packages/torch_xla/torch_xla.py", line 87, in sync',
    )
    item = FollowedCall(3, 3, Node("", "_local_scalar_dense"))
    assert cut_of(executed, SCRIPT, [item]).reason == "item"
    graph = before()
    assert [(node.name, node.full_op, node.phase, node.inputs, node.original) for node in graph.nodes] == [
        ("tanh_1", "aten.tanh", "forward", ("data_0",), ""),
        ("pow_4", "aten.pow", "backward", ("tanh_1", "data_3"), "aten.tanh_backward"),
        ("rsub_5", "aten.rsub", "backward", ("pow_4", "data_2"), "aten.tanh_backward"),
        ("mul_7", "aten.mul", "backward", ("data_6", "rsub_5"), "aten.tanh_backward"),
    ]
    assert {(node.module, node.source, node.sequence) for node in graph.nodes} == {("layers.1", f"{SCRIPT}:9", 5)}
    assert [node.group for node in graph.nodes] == ["", *["tanh_backward_call_2"] * 3]
    assert graph.nodes[0].input_names == ("self",)
    assert (graph.phase, graph.step, graph.outputs) == ("forward+backward", 3, ("tanh_1", "mul_7"))
    assert {name: value.binding for name, value in graph.values.items() if value.binding} == {
        "data_0": "parameter layers.0.weight",
        "data_2": "constant",
        "data_3": "constant",
        "data_6": "input 0",
        "mul_7": "gradient layers.0.weight",
    }


def test_an_output_is_told_where_two_tensors_have_a_value_and_where_an_op_gives_several() -> None:
    # given two sums of one hash, each of which two tensors have, and a pair of gradients, whose first one nobody holds
    text = """[ScheduleSyncTensorsGraph]
Root Hashes: (a, a, b, c, a, a)

## BEGIN_GRAPH
IR {
  %0 = f32[4]{0} xla::device_data(), location=0@numdrift:1
  %1 = f32[4]{0} xla::device_data(), location=0@numdrift:1
  %2 = f32[4]{0} aten::add(%0, %0), location=1@numdrift:2, ROOT=4
  %3 = f32[4]{0} aten::add(%1, %1), location=2@numdrift:3, ROOT=5
  %4 = (f32[2,4]{1,0}, f32[4]{0}, f32[4]{0}) aten::native_batch_norm_backward(%0), location=3@numdrift:4, ROOT=3
}
"""
    (executed,) = executed_in(text)
    numbers = {11: (2, 0), 12: (3, 0), 21: (4, 0), 22: (4, 1), 23: (4, 2), 31: (2, 0), 32: (3, 0)}
    vector = Value("float32", (4,))
    # then the shapes of the outputs tell which of the three they are
    assert outputs_of(executed, numbers, [vector] * 6) == [(2, 0), (3, 0), (4, 1), (4, 2), (2, 0), (3, 0)]
    # and without them it stays open
    assert outputs_of(executed, numbers) == [(2, 0), (3, 0), None, None, (2, 0), (3, 0)]


def test_hlo_is_read_with_fusions_and_what_each_was_lowered_from() -> None:
    pre = before()
    calls = {"data_0": 1, "tanh_1": 1, "data_2": 2, "pow_4": 2, "rsub_5": 2, "data_6": 0, "mul_7": 2}
    graph = post_graph(read_hlo(instructions(MARKED)), pre, calls, ("data_0", "data_2", "data_6"), ("tanh_1", "mul_7"))
    tanh, fusion, copy = graph.nodes
    assert (tanh.full_op, tanh.original, tanh.phase, tanh.covers) == ("hlo.tanh", "aten.tanh", "forward", ("tanh_1",))
    assert (fusion.op, fusion.inputs, fusion.phase) == ("fusion", ("tanh.3", "p2.3"), "backward")
    assert fusion.covers == ("pow_4", "rsub_5", "mul_7")
    # each has its place, and so has what XLA has put in and says nothing of
    assert {(node.module, node.source, node.sequence) for node in graph.nodes} == {("layers.1", f"{SCRIPT}:9", 5)}
    assert (copy.phase, copy.covers) == ("backward", ())
    # the simplifier has made a product of the power, and all three ops of tanh's gradient are one kernel
    assert [(node.op, node.original, node.module) for node in fusion.body] == [
        ("broadcast", "aten.rsub", "layers.1"),
        ("multiply", "aten.pow", "layers.1"),
        ("subtract", "aten.rsub", "layers.1"),
        ("multiply", "aten.mul", "layers.1"),
    ]
    assert fusion.body[1].inputs == ("param_0.1", "param_0.1")
    assert "multiply(%param_0.1, %param_0.1)" in fusion.code and "metadata" not in fusion.code
    assert (graph.inputs, graph.outputs) == (("p0.1", "p1.2", "p2.3"), ("tanh.3", "copy.1"))
    bindings = [graph.values[name].binding for name in (*graph.inputs, *graph.outputs)]
    assert bindings == ["parameter layers.0.weight", "constant", "input 0", "", "gradient layers.0.weight"]


def test_hlo_of_calls_that_nobody_followed_is_told_by_its_ops() -> None:
    graph = post_graph(read_hlo(instructions(UNMARKED)), before(), {}, ("data_0", "data_2", "data_6"), ())
    tanh, fusion, _ = graph.nodes
    assert (tanh.covers, fusion.covers) == (("tanh_1",), ("pow_4", "rsub_5", "mul_7"))
    assert [graph.values[name].binding for name in graph.inputs] == [
        "parameter layers.0.weight",
        "constant",
        "input 0",
    ]
