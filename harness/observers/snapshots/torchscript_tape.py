"""A TorchScript graph of the lazy core executed op by op, each call noted on a tape."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ...tape.call_log import CallLog
from ...tape.op_places import OpPlace
from ...tape.tape import NotReplayable
from ...torch_private.dispatching import registered_operation
from ...torch_private.lazy import torchscript_schema
from ...torch_private.operators import arguments_of

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit")
"""Nodes that read a number out of a tensor."""

NUMBERED = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
SCALAR_TYPES = {number: getattr(torch, name) for number, name in enumerate(NUMBERED.split())} | {15: torch.bfloat16}
"""torch's numbers of dtypes, c10/core/ScalarType.h."""

FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
"""In the order of c10/core/MemoryFormat.h."""

PLACE = OpPlace("forward", None, None)


def executed_graph(log: CallLog, graph: Any, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """The outputs of a `torch._C.Graph`. Raises NotReplayable for what a tape cannot hold, and what an op raises."""
    parameters = [one.debugName() for one in graph.inputs()]
    # The core gives the values in the order in which the graph takes them.
    if len(parameters) != len(inputs):
        raise NotReplayable(f"the graph takes {len(parameters)} values, and {len(inputs)} are known")
    values: dict[str, Any] = dict(zip(parameters, inputs, strict=True))
    for node in graph.nodes():
        kind = node.kind()
        given = [values[one.debugName()] for one in node.inputs()]
        if kind.startswith("aten::") and kind not in NUMBERS:
            results = _called(log, kind, node.schema(), given)
            flat = list(results) if node.outputsSize() > 1 else [results]
            for one, result in zip(node.outputs(), flat, strict=True):
                values[one.debugName()] = result
            continue
        if kind == "prim::Constant":
            value = None if node.mustBeNone() else node.output().toIValue()
        elif kind == "prim::ListConstruct":
            value = given
        elif kind == "prim::TupleConstruct":
            value = tuple(given)
        elif kind in NUMBERS:
            value = given[0].item()
        else:
            raise NotReplayable(f"a lazy graph has a node {kind}, which a tape cannot hold")
        values[node.output().debugName()] = value
    return [values[one.debugName()] for one in graph.outputs()]


def _called(log: CallLog, kind: str, schema: str, given: Sequence[Any]) -> Any:
    operation = _operation(kind, schema)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one, value in zip(arguments_of(operation), given, strict=False):
        # TorchScript writes dtypes, layouts and memory formats as numbers; Python's ops do not take them.
        meant = value
        if type(value) is int and one.name == "dtype":
            meant = SCALAR_TYPES[value]
        elif type(value) is int and one.name == "layout":
            meant = torch.strided
        elif type(value) is int and one.name == "memory_format":
            meant = FORMATS[value]
        if one.keyword_only:
            kwargs[one.name] = meant
        else:
            args.append(meant)
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
