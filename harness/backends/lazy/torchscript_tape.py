"""Execute a TorchScript graph of the lazy core op by op, and record each call on a tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.op_places import OpPlace
from ...tape.recording.call_log import CallLog
from ...tape.recording.followed_calls import OpCall
from ...tape.tape import CompiledNode, NotReplayable
from ...torch_private.deferred.lazy import torchscript_schema
from ...torch_private.dispatching import registered_operation
from ...torch_private.operators import arguments_of, schema_of
from .first_executions import FirstExecutions, NodeKey

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit")
"""Nodes that read a number from a tensor."""

HANDED_ON = ("prim::profile", "prim::profile_ivalue")
"""Nodes that the executor has inserted to profile their inputs."""

NUMBERED = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
SCALAR_TYPES = {number: getattr(torch, name) for number, name in enumerate(NUMBERED.split())} | {15: torch.bfloat16}
"""Dtypes by torch's numbers for them (c10/core/ScalarType.h)."""

FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
"""Memory formats in the order of c10/core/MemoryFormat.h."""

SAME_ORDER = ("view_copy", "_reshape_alias_copy", "unsqueeze_copy", "squeeze_copy", "alias_copy", "detach_copy")
"""Ops that copy a tensor's elements in the same order. On the tape, another view of the tensor represents the copy."""


PLACE = OpPlace("forward", None, None)
"""The site of a node about which nothing is known."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The facts about the call that made a node.

    place: the site of the call.
    frames: the user's frames.
    compiled: the op that the call is a part of, None if the script itself made the call.
    operation: the op that was called.
    values: the plain values that the op was called with, by position.
    reads: True if the recorder made the call to read a value, so that it is not a call of the training.
    iteration: the `iteration` of the call on the tape.
    order: the `order` of the call on the tape.
    key: the node's identity in all graphs of the step, None if it is unknown.
    """

    place: OpPlace = PLACE
    frames: tuple[str, ...] = ()
    compiled: CompiledNode | None = None
    operation: Any = None
    values: Sequence[Any] = ()
    reads: bool = False
    iteration: int = 0
    order: int | None = None
    key: NodeKey | None = None


UNKNOWN = KnownNode()


def executed_graph(
    log: CallLog,
    graph: Any,
    inputs: Sequence[torch.Tensor],
    described: Callable[[int], KnownNode] | None = None,
    firsts: FirstExecutions | None = None,
) -> list[Any]:
    """Execute a `torch._C.Graph` and return its outputs.

    `described` returns the facts about a node that calls an op, by the node's number. With `described`, a copy in the
    order of its source becomes a view on the tape, because the script called a view. `firsts` holds the first execution
    of each node in earlier graphs of the step, and receives those of this graph. A node that is executed once more, and
    gives the same results, is not recorded again. Raise NotReplayable for a node that a tape cannot hold. Exceptions of
    an op propagate.
    """
    firsts = FirstExecutions() if firsts is None else firsts
    parameters = [parameter.debugName() for parameter in graph.inputs()]
    # The core lists the values in the order of the graph's parameters.
    if len(parameters) != len(inputs):
        raise NotReplayable(f"the graph takes {len(parameters)} values, but {len(inputs)} are known")
    values: dict[str, Any] = dict(zip(parameters, inputs, strict=True))
    number = 0
    for node in graph.nodes():
        kind = node.kind()
        arguments = [values[argument.debugName()] for argument in node.inputs()]
        if kind.startswith("aten::") and kind not in NUMBERS:
            known_node = UNKNOWN if described is None else described(number)
            results = _called(log, kind, node.schema(), arguments, known_node, firsts, shares=described is not None)
            flat = list(results) if node.outputsSize() > 1 else [results]
            for output, result in zip(node.outputs(), flat, strict=True):
                values[output.debugName()] = result
            number += 1
            continue
        if kind == "prim::Constant":
            value = None if node.mustBeNone() else node.output().toIValue()
        elif kind == "prim::ListConstruct":
            value = arguments
        elif kind == "prim::TupleConstruct":
            value = tuple(arguments)
        elif kind in NUMBERS:
            value = arguments[0].item()
        elif kind in HANDED_ON and len(arguments) == node.outputsSize() <= 1:
            if not arguments:
                continue
            value = arguments[0]
        else:
            raise NotReplayable(f"a lazy graph has a node {kind}, which a tape cannot hold")
        values[node.output().debugName()] = value
    return [values[graph_output.debugName()] for graph_output in graph.outputs()]


def _called(
    log: CallLog,
    kind: str,
    schema: str,
    values: Sequence[Any],
    node: KnownNode,
    firsts: FirstExecutions,
    *,
    shares: bool,
) -> Any:
    operation = _operation(kind, schema)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, (argument, value) in enumerate(zip(arguments_of(operation), values, strict=False)):
        # TorchScript represents dtypes, layouts and memory formats by numbers, which Python's ops do not accept.
        meant = value
        if type(value) is int and argument.name.endswith("dtype"):
            meant = SCALAR_TYPES[value]
        elif type(value) is int and argument.name == "layout":
            meant = torch.strided
        elif type(value) is int and argument.name == "memory_format":
            meant = FORMATS[value]
        elif node.operation == operation and position < len(node.values):
            meant = _as_number(value, node.values[position])
        if argument.keyword_only:
            kwargs[argument.name] = meant
        else:
            args.append(meant)
    args, kwargs = as_called(operation, args, kwargs)
    started_call = log.take(OpCall(operation, tuple(args), kwargs), node.place)
    same = firsts.with_same_results(node.key, started_call)
    if same is not None:
        return same.outputs
    outputs = operation(*args, **kwargs)
    name = kind.removeprefix("aten::")
    if shares and (name in SAME_ORDER or (node.reads and name == "clone")):
        (source, *_), copy = args, outputs
        if source.is_contiguous() and copy.is_contiguous() and source.numel() == copy.numel():
            return source.view(copy.shape)
    call = log.complete(started_call, outputs, node.frames, node.compiled)
    position = len(log.calls) - 1
    first = firsts.of(node.key)
    repeats = None if first is None else first.position
    log.calls[-1] = call = replace(call, iteration=node.iteration, order=node.order, repeats=repeats)
    firsts.add(node.key, started_call, call, position, outputs)
    return outputs


def as_called(operation: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments in the dispatcher's form: without defaults at the end of `args` or anywhere in `kwargs`."""
    schema_defaults = {arg.name: arg.default_value for arg in schema_of(operation).arguments if arg.has_default_value()}
    names = [arg.name for arg in schema_of(operation).arguments]

    def is_default(name: str, value: Any) -> bool:
        return name in schema_defaults and not isinstance(value, torch.Tensor) and _alike(value, schema_defaults[name])

    while args and is_default(names[len(args) - 1], args[-1]):
        args = args[:-1]
    return args, {name: value for name, value in kwargs.items() if not is_default(name, value)}


def _alike(value: Any, default: Any) -> bool:
    lists = isinstance(value, (list, tuple)) and isinstance(default, (list, tuple))
    return (list(value) == list(default)) if lists else (type(value) is type(default) and value == default)


def _as_number(value: Any, plain: Any) -> Any:
    """Return the script's own number if the core has turned it into a tensor, else the value."""
    is_number = isinstance(plain, (bool, int, float)) and isinstance(value, torch.Tensor) and not value.dim()
    return plain if is_number and value.item() == plain else value


@functools.cache
def _operation(kind: str, schema: str) -> Any:
    overload = torchscript_schema(schema).overload_name or "default"
    name = f"aten.{kind.removeprefix('aten::')}.{overload}"
    operation = registered_operation(name)
    if operation is None:
        raise NotReplayable(f"a lazy graph calls {name}, which only TorchScript has")
    return operation
