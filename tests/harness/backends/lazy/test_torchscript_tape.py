"""Graphs of the lazy core, executed node by node with their ops on tape."""

from __future__ import annotations

import pytest
import torch

from numdrift.harness.backends.lazy.torchscript_tape import UNKNOWN, KnownNode, executed_graph
from numdrift.harness.tape.recording.call_log import CallLog, CallValues
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
    graph = torch._C.parse_ir("graph(%x : Tensor):\n  %y : Tensor = prim::BailOut(%x)\n  return (%y)")
    with pytest.raises(NotReplayable, match="prim::BailOut"):
        executed_graph(CallLog(), graph, [X])
    with pytest.raises(NotReplayable, match="takes 1 values, but 2 are known"):
        executed_graph(CallLog(), graph, [X, N])


def test_what_only_looks_hands_on_and_numbers_and_copies_are_as_the_script_has_them() -> None:
    graph = torch._C.parse_ir("""
graph(%x : Tensor, %n : Tensor):
  %seen : Tensor = prim::profile(%x)
  %size : int[] = prim::Constant[value=[2, 1]]()
  %copy : Tensor = aten::view_copy(%seen, %size)
  %y : Tensor = aten::mul(%copy, %n)
  %one : Scalar = prim::Constant[value=1]()
  %z : Tensor = aten::add(%y, %x, %one)
  return (%z)
""")
    mul = torch.ops.aten.mul.Tensor
    known = [UNKNOWN, KnownNode(operation=mul, values=(None, 3.0)), UNKNOWN]
    log = CallLog()
    (z,) = executed_graph(log, graph, [X, N], known.__getitem__)
    assert torch.equal(z, X.view(2, 1) * 3 + X)
    # then a copy in its own order is a view, a number of the script's is one, and what is the default is left out
    mul_call, add_call = log.calls
    assert (mul_call.op, mul_call.arguments[1]) == ("aten.mul.Tensor", 3.0)
    assert mul_call.arguments[0].slot == log.table.slot_of(X) and mul_call.arguments[0].size == (2, 1)
    assert add_call.op == "aten.add.Tensor" and not add_call.keywords and len(add_call.arguments) == 2
