"""A TorchScript graph of the lazy core executed op by op, each call noted on a tape."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...tape.call_log import CallLog
from ...tape.op_places import OpPlace
from ...tape.tape import NotReplayable
from ...torch_private.lazy_graphs import torchscript_schema
from ...torch_private.operators import arguments_of
from ...torch_private.taping import registered_operation

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit")
"""Nodes that read a number out of a tensor."""

TUPLES = ("prim::TupleConstruct",)

SCALAR_TYPES = {
    number: getattr(torch, name)
    for number, name in enumerate(
        [
            "uint8",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
            "complex32",
            "complex64",
            "complex128",
            "bool",
        ]
    )
} | {15: torch.bfloat16}
"""torch's numbers of dtypes, c10/core/ScalarType.h."""

FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
"""In the order of c10/core/MemoryFormat.h."""

PLACE = OpPlace("forward", None, None)


def executed_graph(log: CallLog, graph: Any, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """The outputs of a `torch._C.Graph`. Raises NotReplayable for what a tape cannot hold, and what an op
    raises."""
    parameters = [one.debugName() for one in graph.inputs()]
    if len(parameters) != len(inputs):
        raise NotReplayable(f"the graph takes {len(parameters)} values, and {len(inputs)} are known")
    values: dict[str, Any] = dict(zip(parameters, inputs, strict=True))
    for node in graph.nodes():
        _execute(log, node, values)
    return [values[one.debugName()] for one in graph.outputs()]


def _execute(log: CallLog, node: Any, values: dict[str, Any]) -> None:
    kind = node.kind()
    given = [values[one.debugName()] for one in node.inputs()]
    if kind == "prim::Constant":
        values[node.output().debugName()] = None if node.mustBeNone() else node.output().toIValue()
    elif kind == "prim::ListConstruct":
        values[node.output().debugName()] = given
    elif kind in TUPLES:
        values[node.output().debugName()] = tuple(given)
    elif kind in NUMBERS:
        values[node.output().debugName()] = given[0].item()
    elif kind.startswith("aten::"):
        results = _called(log, kind, node.schema(), given)
        flat = list(results) if node.outputsSize() > 1 else [results]
        for one, result in zip(node.outputs(), flat, strict=True):
            values[one.debugName()] = result
    else:
        raise NotReplayable(f"a lazy graph has a node {kind}, which a tape cannot hold")


def _called(log: CallLog, kind: str, schema: str, given: Sequence[Any]) -> Any:
    operation = _operation(kind, schema)
    arguments = arguments_of(operation)
    args = [_meant(one.name, value) for one, value in zip(arguments, given, strict=False) if not one.keyword_only]
    kwargs: Mapping[str, Any] = {
        one.name: _meant(one.name, value) for one, value in zip(arguments, given, strict=False) if one.keyword_only
    }
    taken = log.take(operation, tuple(args), kwargs, PLACE, grad=False)
    outputs = operation(*args, **kwargs)
    log.complete(operation, tuple(args), kwargs, taken, outputs, None)
    return outputs


@functools.cache
def _operation(kind: str, schema: str) -> Any:
    overload = torchscript_schema(schema).overload_name or "default"
    name = f"aten.{kind.removeprefix('aten::')}.{overload}"
    found = registered_operation(name)
    if found is None:
        raise NotReplayable(f"a lazy graph calls {name}, which only TorchScript has")
    return found


def _meant(name: str, value: Any) -> Any:
    """A constant as Python has it: TorchScript writes dtypes, layouts and memory formats as numbers."""
    if type(value) is int and name == "dtype":
        return SCALAR_TYPES[value]
    if type(value) is int and name == "layout":
        return torch.strided
    if type(value) is int and name == "memory_format":
        return FORMATS[value]
    return value
