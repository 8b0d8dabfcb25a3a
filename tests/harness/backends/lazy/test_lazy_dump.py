"""The lazy core's text of a graph, and TorchScript's graph, as data."""

from __future__ import annotations

import torch

from numdrift.harness.backends.dumped_ir import Frame
from numdrift.harness.backends.lazy.lazy_dump import parse
from numdrift.harness.backends.lazy.torchscript_graph import read_torchscript
from numdrift.harness.records.tools.graph_record import Value

DUMP = """Python Stacktrace:
  mark_step (/site/torch/_lazy/__init__.py:17)
  <module> (/work/train (1).py:32)

Hashes: (61d1, 8bce)

## BEGIN_GRAPH
IR {
  %0 = [Float[5,8]] lazy_tensors::device_data(), location=3@numdrift:2, device=CPU0, ROOT=0, NodeType=N1D
  %1 = [Long[]] prim::Constant(), location=f@x.py:1, value=1, NodeType=N1S
  %2 = [Float[], Float[]] aten::nll_loss_forward(%0, %1), num_outputs=2, reduction=1, NodeType=N1N
  %3 = [] lazy_tensors::tensor_list(%2.0, %2.1), NodeType=N1L
  %4 = [BFloat16[2]] aten::stack(%3), dim=0, ROOT=1, NodeType=N1T
}

## END_GRAPH
"""


def test_a_dumped_graph_is_read() -> None:
    # when
    graph = parse(DUMP)
    # then
    assert graph.frames[1] == Frame("<module>", "/work/train (1).py", 32)
    assert list(graph.hashes) == ["61d1", "8bce"]
    data, constant, loss, stack = graph.nodes
    assert (data.is_input, constant.is_input, loss.is_input) == (True, True, False)
    assert data.root == 0 and data.location == "3@numdrift:2"
    assert loss.outputs == (Value("float32", ()), Value("float32", ()))
    assert loss.operands == ((0, 0), (1, 0))
    # and a list is given to who takes it
    assert stack.operands == ((2, 0), (2, 1))
    assert stack.outputs == (Value("bfloat16", (2,)),)
    assert parse(DUMP.replace("8bce", "8bcf")).digest != graph.digest


def test_constants_and_lists_of_torchscript_become_part_of_the_nodes() -> None:
    # given
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y], 1).sum([0], keepdim=True)

    # when
    graph = read_torchscript(torch.jit.script(function).graph)
    # then
    cat, total = graph.nodes
    assert cat.inputs == graph.inputs
    assert cat.names == ("tensors", "tensors") and cat.attributes == {"dim": 1}
    assert (total.op, total.overload, total.inputs) == ("sum", "dim_IntList", cat.outputs)
    assert total.attributes == {"dim": [0], "keepdim": True}
