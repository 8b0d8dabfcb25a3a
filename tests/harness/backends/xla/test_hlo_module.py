"""What torch_xla and XLA write of a graph is read as graphs of the record: IR, and HLO with its fusions."""

from __future__ import annotations

from numdrift.harness.backends.xla.hlo_module import post_graph, read_hlo
from numdrift.harness.backends.xla.xla_ir import cut_of, executed_in, pre_graph
from numdrift.harness.records.graph_record import Cut, Value

# `y = tanh(x); y.backward(g)` of a script, as torch_xla 2.9 writes it, without most of its technical attributes
IR = """[ScheduleSyncTensorsGraph]
TensorsGraphInfo:
  sync (/site-packages/torch_xla/torch_xla.py:87)
  <module> (/home/me/train.py:17)

Root Hashes: (bd1b1da7, 9b3b6b62)

## BEGIN_GRAPH
IR {
  %0 = f32[4]{0} xla::device_data(), location=<module>@train.py:9, xla_shape=f32[4]{0}
  %1 = f32[4]{0} aten::tanh(%0), location=<module>@train.py:10, xla_shape=f32[4]{0}, ROOT=0
  %2 = f32[] prim::Constant(), xla_shape=f32[]
  %3 = f32[] prim::Constant(), xla_shape=f32[]
  %4 = f32[4]{0} aten::pow(%1, %3), xla_shape=f32[4]{0}
  %5 = f32[4]{0} aten::rsub(%4, %2), scope=aten::rsub.1, xla_shape=f32[4]{0}
  %6 = f32[4]{0} xla::device_data(), location=<module>@train.py:11, xla_shape=f32[4]{0}
  %7 = f32[4]{0} aten::mul(%6, %5), scope=aten::mul.2, xla_shape=f32[4]{0}, ROOT=1
}

Graph Hash: b3d5fa99

## END_GRAPH

"""

HLO = """HloModule SyncTensorsGraph.9, is_scheduled=true, entry_computation_layout={(f32[4]{0}, f32[4]{0})->(f32[4]{0}, f32[4]{0})}

%fused_computation (param_0.1: f32[4], param_1.2: f32[4]) -> f32[4] {
  %param_1.2 = f32[4]{0} parameter(1)
  %constant.1 = f32[] constant(1), metadata={op_type="prim__Constant" op_name="prim__Constant"}
  %broadcast.7 = f32[4]{0} broadcast(%constant.1), dimensions={}, metadata={op_type="aten__rsub" op_name="aten__rsub.1/aten__rsub"}
  %param_0.1 = f32[4]{0} parameter(0)
  %multiply.7 = f32[4]{0} multiply(%param_0.1, %param_0.1), metadata={op_type="aten__pow" op_name="aten__pow"}
  %subtract.0 = f32[4]{0} subtract(%broadcast.7, %multiply.7), metadata={op_type="aten__rsub" op_name="aten__rsub.1/aten__rsub"}
  ROOT %multiply.6 = f32[4]{0} multiply(%param_1.2, %subtract.0), metadata={op_type="aten__mul" op_name="aten__mul.2/aten__mul"}
}

ENTRY %SyncTensorsGraph.9 (p0.1: f32[4], p1.2: f32[4]) -> (f32[4], f32[4]) {
  %p0.1 = f32[4]{0} parameter(0), metadata={op_type="xla__device_data" op_name="xla__device_data"}
  %p1.2 = f32[4]{0} parameter(1), metadata={op_type="xla__device_data" op_name="xla__device_data"}
  %tanh.3 = f32[4]{0} tanh(%p0.1), metadata={op_type="aten__tanh" op_name="aten__tanh" source_file="/home/me/train.py" source_line=10}
  %subtract_multiply_fusion = f32[4]{0} fusion(%tanh.3, %p1.2), kind=kLoop, calls=%fused_computation, metadata={op_type="aten__mul" op_name="aten__mul.2/aten__mul"}
  ROOT %tuple.1 = (f32[4]{0}, f32[4]{0}) tuple(%tanh.3, %subtract_multiply_fusion)
}
"""


def test_ir_is_read_with_its_values_phases_and_what_cut_it() -> None:
    (executed,) = executed_in(IR)
    assert (executed.hash, executed.roots) == ("b3d5fa99", 2)
    assert cut_of(executed, "/home/me/train.py") == Cut(
        "mark_step",
        source="/home/me/train.py:17",
        stack='  File "/home/me/train.py", line 17, in <module>\n'
        '  File "/site-packages/torch_xla/torch_xla.py", line 87, in sync',
    )
    graph = pre_graph(executed, "/home/me/train.py", 3)
    assert [(node.name, node.full_op, node.phase, node.inputs) for node in graph.nodes] == [
        ("tanh_1", "aten.tanh", "forward", ("data_0",)),
        ("pow_4", "aten.pow", "backward", ("tanh_1", "data_3")),
        ("rsub_5", "aten.rsub", "backward", ("pow_4", "data_2")),
        ("mul_7", "aten.mul", "backward", ("data_6", "rsub_5")),
    ]
    assert graph.nodes[0].source == "/home/me/train.py:10"
    assert (graph.phase, graph.step, graph.outputs) == ("forward+backward", 3, ("tanh_1", "mul_7"))
    assert graph.values["data_3"] == Value("float32", (), "constant")
    # what is executed after a backward and has none of its own updates parameters
    without = executed_in(IR.replace(", location=<module>@train.py:10", ", location=step@sam.py:10"))
    assert pre_graph(without[0], "train.py", 0, updates=True).phase == "forward+backward"
    alone = IR[: IR.index("  %2 =")] + "}\n"
    assert pre_graph(executed_in(alone)[0], "train.py", 0, updates=True).phase == "optimizer"


def test_hlo_is_read_with_fusions_and_what_each_was_lowered_from() -> None:
    pre = pre_graph(executed_in(IR)[0], "/home/me/train.py", 3)
    graph = post_graph(read_hlo(HLO), pre)
    tanh, fusion = graph.nodes
    assert (tanh.full_op, tanh.original, tanh.phase, tanh.covers) == ("hlo.tanh", "aten.tanh", "forward", ("tanh_1",))
    assert (fusion.op, fusion.inputs, fusion.phase) == ("fusion", ("tanh.3", "p1.2"), "backward")
    # the simplifier has made a product of the power, and all three ops of tanh's gradient are one kernel
    assert [(node.op, node.original) for node in fusion.body] == [
        ("broadcast", "aten.rsub"),
        ("multiply", "aten.pow"),
        ("subtract", "aten.rsub"),
        ("multiply", "aten.mul"),
    ]
    assert fusion.body[1].inputs == ("param_0.1", "param_0.1")
    assert set(fusion.covers) == {"pow_4", "rsub_5", "mul_7"}
    assert "multiply(%param_0.1, %param_0.1)" in fusion.code and "metadata" not in fusion.code
    assert (graph.inputs, graph.outputs) == (("p0.1", "p1.2"), ("tanh.3", "subtract_multiply_fusion"))
