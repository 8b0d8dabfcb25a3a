"""Support in lazy mode: the lazy core's counters of fallbacks, and the IR that each call adds to the pending
graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from ...records.backend_work import OperatorCall
from ...records.graph_record import Value
from ...torch_private.lazy_graphs import LAZY_KEY, set_lazy_source_locations
from ...torch_private.lazy_support import lazy_counter, lazy_text, lower_lazy
from ...torch_private.operators import written_names
from ..called_operators import shape_text, tensors_among
from ..dispatched_support import Added, DeviceBackend, KernelCall, observe_device
from .lazy_calls import FRAME, named_frame
from .lazy_dump import DumpedGraph, DumpedNode, parse
from .lazy_pre import TECHNICAL

_numbers = itertools.count(1)


def observe_lazy(script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
    """Within the context `told` hears of each operator that the lazy core is given."""
    backend = DeviceBackend(LAZY_KEY, "lazy", "lazy core", lazy_counter, _added)
    return observe_device(backend, script, told)


def _added(once: KernelCall, args: Sequence[Any]) -> Added:
    """Run a call from a frame by whose name the nodes that it makes are known again; see
    capture/lazy_calls.py."""
    mark = str(next(_numbers))
    before = set_lazy_source_locations(True)
    try:
        outputs = once.run(named_frame(mark))
    finally:
        set_lazy_source_locations(before)
    written = list(tensors_among(outputs)) or list(tensors_among(args))
    made = [one for one in written if one.device.type == "lazy"]
    graph = parse(f"## BEGIN_GRAPH\n{lazy_text(made)}\n## END_GRAPH\n")
    marked = f"{mark}@{FRAME}:"
    nodes = [one for one in graph.nodes if one.location.startswith(marked) and not one.is_given]
    computes = next(tensors_among(args), None) is not None and not written_names(once.kernel.operation)
    if computes and all(one.is_given for one in graph.nodes):
        return Added(outputs, (once.instruction(args, "lazy"),))  # it was executed at once (execute=op)
    return Added(outputs, tuple(_instruction(one, graph) for one in nodes), _refusal(made))


def _refusal(made: Sequence[torch.Tensor]) -> str:
    """Why the lazy core's backend cannot lower what is pending for these tensors, "" where it can."""
    try:
        lower_lazy(made)
    except RuntimeError as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def _instruction(node: DumpedNode, graph: DumpedGraph) -> str:
    """A node of the IR as `float32[4] aten::add(float32[4], float32[])`, with its attributes."""
    known = {one.number: one.outputs for one in graph.nodes}
    made = ", ".join(map(_value, node.outputs))
    taken = [_operand(known.get(number, ()), which) for number, which in node.operands]
    attributes = [f"{name}={value}" for name, value in node.tags.items() if name not in TECHNICAL]
    return f"{made} {node.domain}::{node.op}({', '.join([*taken, *attributes])})"


def _operand(outputs: Sequence[Value], which: int) -> str:
    return _value(outputs[which]) if which < len(outputs) else "?"


def _value(value: Value) -> str:
    return shape_text(value.dtype or "?", value.shape or ())
