"""A TorchScript graph of the lazy core executed op by op, each call noted on a tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...tape.call_log import CallLog
from ...tape.op_places import OpPlace
from ...tape.tape import Call, CompiledNode, NotReplayable
from ...torch_private.dispatching import registered_operation
from ...torch_private.lazy import torchscript_schema
from ...torch_private.operators import arguments_of, schema_of

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit")
"""Nodes that read a number out of a tensor."""

HANDED_ON = ("prim::profile", "prim::profile_ivalue")
"""Nodes that the executor has put in to look at what they are given."""

NUMBERED = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
SCALAR_TYPES = {number: getattr(torch, name) for number, name in enumerate(NUMBERED.split())} | {15: torch.bfloat16}
"""torch's numbers of dtypes, c10/core/ScalarType.h."""

FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
"""In the order of c10/core/MemoryFormat.h."""

SAME_ORDER = ("view_copy", "_reshape_alias_copy", "unsqueeze_copy", "squeeze_copy", "alias_copy", "detach_copy")
"""Ops that copy a tensor element by element in its own order: another view of it stands for the copy."""


PLACE = OpPlace("forward", None, None)
"""Of a node of which nothing is known."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """What is known of the call behind a node: where it is, what op it is a part of, and the plain values that its op
    was called with, by place. `reads` says that it is none of the training's: its copy is read by who records. `noted`
    is told of the call on the tape, by its number, and gives what is to stand there."""

    place: OpPlace = PLACE
    frames: tuple[str, ...] = ()
    compiled: CompiledNode | None = None
    operation: Any = None
    values: Sequence[Any] = ()
    reads: bool = False
    noted: Callable[[int, Call], Call] = lambda number, call: call


UNKNOWN = KnownNode()


def executed_graph(
    log: CallLog, graph: Any, inputs: Sequence[torch.Tensor], described: Callable[[int], KnownNode] | None = None
) -> list[Any]:
    """The outputs of a `torch._C.Graph`. Raises NotReplayable for what a tape cannot hold, and what an op raises.

    `described` tells of its nodes that compute, by their number. Where it is given, copies in the order of what they
    copy are views on the tape, which is what the script has asked for.
    """
    parameters = [one.debugName() for one in graph.inputs()]
    # The core gives the values in the order in which the graph takes them.
    if len(parameters) != len(inputs):
        raise NotReplayable(f"the graph takes {len(parameters)} values, and {len(inputs)} are known")
    values: dict[str, Any] = dict(zip(parameters, inputs, strict=True))
    number = 0
    for node in graph.nodes():
        kind = node.kind()
        given = [values[one.debugName()] for one in node.inputs()]
        if kind.startswith("aten::") and kind not in NUMBERS:
            known = UNKNOWN if described is None else described(number)
            results = _called(log, kind, node.schema(), given, known, shares=described is not None)
            flat = list(results) if node.outputsSize() > 1 else [results]
            for one, result in zip(node.outputs(), flat, strict=True):
                values[one.debugName()] = result
            number += 1
            continue
        if kind == "prim::Constant":
            value = None if node.mustBeNone() else node.output().toIValue()
        elif kind == "prim::ListConstruct":
            value = given
        elif kind == "prim::TupleConstruct":
            value = tuple(given)
        elif kind in NUMBERS:
            value = given[0].item()
        elif kind in HANDED_ON and len(given) == node.outputsSize() <= 1:
            if not given:
                continue
            value = given[0]
        else:
            raise NotReplayable(f"a lazy graph has a node {kind}, which a tape cannot hold")
        values[node.output().debugName()] = value
    return [values[one.debugName()] for one in graph.outputs()]


def _called(log: CallLog, kind: str, schema: str, given: Sequence[Any], known: KnownNode, *, shares: bool) -> Any:
    operation = _operation(kind, schema)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, (one, value) in enumerate(zip(arguments_of(operation), given, strict=False)):
        # TorchScript writes dtypes, layouts and memory formats as numbers; Python's ops do not take them.
        meant = value
        if type(value) is int and one.name.endswith("dtype"):
            meant = SCALAR_TYPES[value]
        elif type(value) is int and one.name == "layout":
            meant = torch.strided
        elif type(value) is int and one.name == "memory_format":
            meant = FORMATS[value]
        elif known.operation == operation and place < len(known.values):
            meant = _as_number(value, known.values[place])
        if one.keyword_only:
            kwargs[one.name] = meant
        else:
            args.append(meant)
    args, kwargs = as_called(operation, args, kwargs)
    taken = log.take(operation, tuple(args), kwargs, known.place, grad=False)
    outputs = operation(*args, **kwargs)
    name = kind.removeprefix("aten::")
    if shares and (name in SAME_ORDER or (known.reads and name == "clone")):
        (source, *_), copy = args, outputs
        if source.is_contiguous() and copy.is_contiguous() and source.numel() == copy.numel():
            return source.view(copy.shape)
    call = log.complete(operation, tuple(args), kwargs, taken, outputs, known.frames, known.compiled)
    log.calls[-1] = known.noted(len(log.calls) - 1, call)
    return outputs


def as_called(operation: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as the dispatcher shows them: without those at the end, and those with names, that are the defaults."""
    known = {one.name: one.default_value for one in schema_of(operation).arguments if one.has_default_value()}
    names = [one.name for one in schema_of(operation).arguments]

    def is_default(name: str, value: Any) -> bool:
        return name in known and not isinstance(value, torch.Tensor) and _alike(value, known[name])

    while args and is_default(names[len(args) - 1], args[-1]):
        args = args[:-1]
    return args, {name: value for name, value in kwargs.items() if not is_default(name, value)}


def _alike(value: Any, default: Any) -> bool:
    lists = isinstance(value, (list, tuple)) and isinstance(default, (list, tuple))
    return (list(value) == list(default)) if lists else (type(value) is type(default) and value == default)


def _as_number(value: Any, plain: Any) -> Any:
    """What the script has computed with as a number is one, where the core has made a tensor of it."""
    is_number = isinstance(plain, (bool, int, float)) and isinstance(value, torch.Tensor) and not value.dim()
    return plain if is_number and value.item() == plain else value


@functools.cache
def _operation(kind: str, schema: str) -> Any:
    overload = torchscript_schema(schema).overload_name or "default"
    name = f"aten.{kind.removeprefix('aten::')}.{overload}"
    found = registered_operation(name)
    if found is None:
        raise NotReplayable(f"a lazy graph calls {name}, which only TorchScript has")
    return found
