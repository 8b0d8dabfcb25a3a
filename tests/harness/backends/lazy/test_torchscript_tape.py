"""Graphs of the lazy core, executed node by node with their ops on tape."""

from __future__ import annotations

import pytest
import torch

from numdrift.harness.backends.lazy.torchscript_tape import executed_graph
from numdrift.harness.tape.call_log import CallLog, CallValues
from numdrift.harness.tape.tape import NotReplayable

X, N = torch.tensor([1.0, 2.0]), torch.tensor(3.0)


def test_a_number_is_read_out_of_a_tensor_and_every_op_is_on_the_tape() -> None:
    graph = torch._C.parse_ir("""
graph(%x : Tensor, %n : Tensor):
  %number : Scalar = aten::ScalarImplicit(%n)
  %dim : int = prim::Constant[value=0]()
  %type : int = prim::Constant[value=7]()
  %keep : bool = prim::Constant[value=0]()
  %dims : int[] = prim::ListConstruct(%dim)
  %y : Tensor = aten::mul(%x, %number)
  %sum : Tensor = aten::sum(%y, %dims, %keep, %type)
  %both : (Tensor, Tensor) = prim::TupleConstruct(%y, %sum)
  return (%both)
""")
    log = CallLog(CallValues())
    ((y, total),) = executed_graph(log, graph, [X, N])
    assert torch.equal(y, X * 3)
    assert total.dtype == torch.float64 and total.item() == 9.0  # 7 is torch's number of float64
    assert [call.op for call in log.calls] == ["aten.mul.Scalar", "aten.sum.dim_IntList"]


def test_other_nodes_and_other_numbers_of_inputs_are_reasons() -> None:
    graph = torch._C.parse_ir("graph(%x : Tensor):\n  %y : Tensor = prim::profile(%x)\n  return (%y)")
    with pytest.raises(NotReplayable, match="prim::profile"):
        executed_graph(CallLog(), graph, [X])
    with pytest.raises(NotReplayable, match="takes 1 values, and 2 are known"):
        executed_graph(CallLog(), graph, [X, N])
