"""An FX graph, of dynamo or of aten ops, as nodes and values of the record."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...records.graph_record import Node, Value
from ...tape.origin import FRAME, frames_in, line_of
from ...torch_private.graph_stages import CALL, parts_of_op
from ...torch_private.operators import arguments_of, overloads_of

TORCH = str(Path(torch.__file__).parent)
NUMDRIFT = str(Path(__file__).absolute().parents[2])
GIVEN = ("placeholder", "get_attr")
"""Nodes that compute nothing: what a graph is given, and what it holds."""


@dataclass(frozen=True, slots=True)
class GraphParts:
    """What a graph is made of. `outputs` are in the graph's order, None where it returns no value there."""

    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str | None, ...]

    @property
    def hash(self) -> str:
        """The same for graphs of the same ops on the same kinds of values."""
        text = hashlib.sha256()
        for node in self.nodes:
            text.update(repr((node.full_op, node.inputs, node.outputs, sorted(node.attributes.items()))).encode())
        for name, value in self.values.items():
            text.update(repr((name, value.dtype, value.shape, value.binding)).encode())
        text.update(repr((self.inputs, self.outputs)).encode())
        return text.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read one graph: `script` is the training script, `modules` the paths by autograd sequence number
    that its forward has, `bindings` what its placeholders and outputs are to the script, by name."""

    phase: str
    script: str
    modules: Mapping[int, str]
    bindings: Mapping[str, str]


def read_graph(graph: torch.fx.Graph, reading: Reading) -> GraphParts:
    """The parts of a graph. A `getitem` that takes one result out of several becomes an output of its node."""
    # The results that are taken out of a node with several, and by node those taken out of it. A result may be taken
    # out twice: both are the first one's value then.
    taken_out: dict[torch.fx.Node, str] = {}
    parts: dict[torch.fx.Node, dict[int, torch.fx.Node]] = {}
    for one in graph.nodes:
        source, index = one.args if one.target is operator.getitem else (None, None)
        # Only one level is taken apart: what is a tuple within a tuple stays a node.
        if not isinstance(index, int) or not isinstance(source, torch.fx.Node) or source.target is operator.getitem:
            continue
        if source.op not in GIVEN and isinstance(_example(source), (tuple, list)):
            taken_out[one] = parts.setdefault(source, {}).setdefault(index, one).name
    groups: dict[Any, str] = {}
    nodes: list[Node] = []
    values: dict[str, Value] = {}
    inputs: list[str] = []
    outputs: tuple[str | None, ...] = ()
    for one in graph.nodes:
        if one.op in GIVEN:
            if one.op == "get_attr" and _is_module(one):
                continue
            inputs.append(one.name)
            bound = "constant" if one.op == "get_attr" else ""
            values[one.name] = value_of(one, reading.bindings.get(one.name, bound))
        elif one.op == "output":
            found = one.args[0] if isinstance(one.args[0], (list, tuple)) else one.args
            outputs = tuple(taken_out.get(each, each.name) if _is_value(each) else None for each in found)
        elif one not in taken_out:
            made = [part for _, part in sorted(parts[one].items())] if one in parts else [one]
            nodes.append(_node(one, tuple(part.name for part in made), taken_out, reading, groups))
            values.update({part.name: value_of(part, reading.bindings.get(part.name, "")) for part in made})
    return GraphParts(tuple(nodes), values, tuple(inputs), outputs)


def _node(
    one: torch.fx.Node,
    made: tuple[str, ...],
    taken_out: Mapping[torch.fx.Node, str],
    reading: Reading,
    groups: dict[Any, str],
) -> Node:
    # The namespace, the name and the overload of what a node calls
    target = one.target
    if (parts := parts_of_op(target)) is not None:
        domain, op, overload = parts
    elif isinstance(target, str):
        domain, op, overload = ("torch", target.rpartition(".")[2], "")
    else:
        name = getattr(target, "__name__", None) or str(target)
        module = getattr(target, "__module__", None) or "torch"
        domain, op, overload = (
            "torch" if module.startswith("torch") else "python",
            name.replace(".", "_").strip("_") or "call",
            "",
        )
    inputs, names, attributes = _arguments(one, taken_out)
    # The op that a node was decomposed from, and the name of the decomposed call; both "" for an op as called
    before = parts_of_op(one.meta.get("original_aten"))
    now = parts_of_op(one.target)
    if before is None or now is None or before[:2] == now[:2]:
        original, group = ("", "")
    else:
        name = ".".join(before[:2])
        call = one.meta.get(CALL, (one.meta.get("seq_nr"), one.meta.get("stack_trace")))
        key = (name, call)
        original, group = (name, groups.setdefault(key, f"{name}#{len(groups) + 1}"))
    stack = str(one.meta.get("stack_trace") or "").rstrip()
    sequence = one.meta.get("seq_nr")
    return Node(
        name=one.name,
        op=op,
        domain=domain,
        overload=overload,
        phase=reading.phase,
        module=_module(one, reading),
        source=script_line(stack, reading.script),
        stack=stack,
        sequence=sequence if isinstance(sequence, int) and sequence >= 0 else None,
        original=original,
        group=group,
        inputs=inputs,
        input_names=names,
        outputs=made,
        attributes=attributes,
    )


def _arguments(
    one: torch.fx.Node, taken_out: Mapping[torch.fx.Node, str]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    """The values that a node takes, the names of their arguments, and its other arguments as attributes."""
    inputs: list[str] = []
    names: list[str] = []
    attributes: dict[str, Any] = {}
    known = _argument_names(one.target if one.op == "call_function" else None)
    named = [(known[at] if at < len(known) else f"argument_{at}", argument) for at, argument in enumerate(one.args)]
    for name, argument in (*named, *one.kwargs.items()):
        found = [each for each in _leaves(argument) if _is_value(each)]
        inputs += [taken_out.get(each, each.name) for each in found]
        names += [name] * len(found)
        # A list of values and numbers is both: of `view(x, [s0, 4])` the size s0 is an input, the list an attribute.
        if argument is not None and not (found and len(found) == len(list(_leaves(argument)))):
            attributes[name] = _plain(argument, taken_out)
    return tuple(inputs), tuple(names), attributes


@functools.cache
def _argument_names(target: Callable[..., Any] | None) -> Sequence[str]:
    if target is None:
        return ("self",)
    if parts_of_op(target) is not None:
        return [one.name for one in arguments_of(target)]
    try:
        found = inspect.signature(target).parameters.values()
    except (ValueError, TypeError):  # one of torch's own, which is the op of this name
        overloads = overloads_of(getattr(target, "__name__", ""))
        schema = arguments_of(overloads[0]) if overloads else []
        return [one.name for one in schema if not one.keyword_only]
    return [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _leaves(argument: Any) -> Iterator[Any]:
    if isinstance(argument, (list, tuple)):
        for one in argument:
            yield from _leaves(one)
    elif isinstance(argument, dict):
        for one in argument.values():
            yield from _leaves(one)
    elif argument is not None:
        yield argument


def _plain(argument: Any, taken_out: Mapping[torch.fx.Node, str]) -> Any:
    """An argument as the record holds it: text, numbers that JSON has, and lists of those."""
    if isinstance(argument, torch.fx.Node):
        return taken_out.get(argument, argument.name)
    if type(argument) is float:
        return argument if math.isfinite(argument) else str(argument)
    if type(argument) in (bool, int, str):
        return argument
    if isinstance(argument, (list, tuple)) and not any(isinstance(one, (list, tuple)) for one in argument):
        return [_plain(one, taken_out) for one in argument]
    return str(argument).removeprefix("torch.")


def _module(one: torch.fx.Node, reading: Reading) -> str | None:
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        if one.meta.get(key):
            return module_path(one.meta[key])
    if one.meta.get("seq_nr") in reading.modules:
        return reading.modules[one.meta["seq_nr"]]
    return "" if reading.phase != "backward" and one.meta.get("stack_trace") else None


def modules_by_sequence(nodes: Sequence[Node]) -> dict[int, str]:
    """The module of each autograd sequence number, by the first node that has it."""
    found: dict[int, str] = {}
    for node in nodes:
        if node.sequence is not None and node.module is not None:
            found.setdefault(node.sequence, node.module)
    return found


def module_path(stack: Mapping[str, Any]) -> str:
    """The innermost module: `L['self'].net.1` is `net.1`, `L['module']` the outermost itself."""
    found = list(stack.values())[-1]
    return path_in_source(str(found[0] if isinstance(found, (list, tuple)) else found))


@functools.cache
def path_in_source(expression: str) -> str:
    """The dotted path that dynamo's expression for a module or a tensor means, from the outermost module on."""
    path = re.sub(r"^[LG]\['\w+'\]", "", expression)
    path = re.sub(r"\['?(\w+)'?\]", r".\1", path)
    return re.sub(r"\._(modules|parameters|buffers|orig_mod)(?=\.|$)", "", path).strip(".")


@functools.lru_cache(maxsize=4096)
def script_line(stack: str, script: str) -> str:
    """The innermost frame of the user's own files in a stack, else the innermost one outside of torch and of numdrift,
    as `file:line`."""
    mine = frames_in(stack, script)
    if mine:
        return line_of(mine[0])
    found = [one for one in FRAME.findall(stack) if not one[0].startswith((TORCH, NUMDRIFT))]
    return ":".join(found[-1][:2]) if found else ""


def value_of(one: torch.fx.Node, binding: str = "") -> Value:
    """What a node's value is, as far as the compiler has noted it."""
    example = _example(one)
    if isinstance(example, torch.Tensor):
        sizes = tuple(size if type(size) is int else str(size) for size in example.shape)
        return Value(str(example.dtype).removeprefix("torch."), sizes, binding)
    kinds = ((torch.SymBool, bool, "bool"), (torch.SymInt, int, "int64"), (torch.SymFloat, float, "float64"))
    for symbolic, plain, dtype in kinds:
        if isinstance(example, (symbolic, plain)):
            return Value(dtype, (), binding)
    return Value(binding=binding)


def _example(one: torch.fx.Node) -> Any:
    return one.meta.get("val", one.meta.get("example_value"))


def _is_value(argument: Any) -> bool:
    return isinstance(argument, torch.fx.Node) and not (argument.op == "get_attr" and _is_module(argument))


def _is_module(one: torch.fx.Node) -> bool:
    """Whether a `get_attr` names a graph of its own, which a higher order op takes as its body."""
    owner = one.graph.owning_module
    found: Any = owner
    for name in str(one.target).split("."):
        found = getattr(found, name, None)
    return isinstance(found, torch.nn.Module)
