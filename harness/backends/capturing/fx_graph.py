"""Read an FX graph, either dynamo's or one of aten ops, into the nodes and values of a record."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...records.tools.graph_record import Node, Value
from ...tape.node_origin import line_in_stack, module_path, sequence_of, stack_of
from ...torch_private.compiler.graph_stages import CALL, parts_of_op
from ...torch_private.operators import arguments_of, overloads_of

INPUTS = ("placeholder", "get_attr")
"""Opcodes of nodes that compute nothing: inputs of the graph, and values stored in it."""


@dataclass(frozen=True, slots=True)
class GraphParts:
    """The parts of a graph. `outputs` are in the graph's order, None where the graph returns no value."""

    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str | None, ...]

    @property
    def hash(self) -> str:
        """A digest of the graph's ops, and of the names, kinds and bindings of its values."""
        text = hashlib.sha256()
        for node in self.nodes:
            text.update(repr((node.full_op, node.inputs, node.outputs, sorted(node.attributes.items()))).encode())
        for name, value in self.values.items():
            text.update(repr((name, value.dtype, value.shape, value.binding)).encode())
        text.update(repr((self.inputs, self.outputs)).encode())
        return text.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Reading:
    """The context in which a graph is read.

    script: the path of the training script.
    modules: the module paths of the graph's forward, by autograd sequence number.
    bindings: the bindings of the graph's placeholders and outputs to the script, by name.
    """

    phase: str
    script: str
    modules: Mapping[int, str]
    bindings: Mapping[str, str]


def read_graph(graph: torch.fx.Graph, reading: Reading) -> GraphParts:
    """Return the parts of a graph. If a node has several results, the `getitem` nodes on them become its outputs."""
    # `parts` maps each node with several results to its `getitem` nodes by index. `taken_out` maps each `getitem` node
    # to the name of its value. Two `getitem` nodes of the same result both have the name of the first.
    taken_out: dict[torch.fx.Node, str] = {}
    parts: dict[torch.fx.Node, dict[int, torch.fx.Node]] = {}
    for node in graph.nodes:
        source, index = node.args if node.target is operator.getitem else (None, None)
        # Only one level is resolved: a `getitem` on a nested tuple remains a node.
        if not isinstance(index, int) or not isinstance(source, torch.fx.Node) or source.target is operator.getitem:
            continue
        if source.op not in INPUTS and isinstance(_example(source), (tuple, list)):
            taken_out[node] = parts.setdefault(source, {}).setdefault(index, node).name
    groups: dict[Any, str] = {}
    nodes: list[Node] = []
    values: dict[str, Value] = {}
    inputs: list[str] = []
    outputs: tuple[str | None, ...] = ()
    for node in graph.nodes:
        if node.op in INPUTS:
            if node.op == "get_attr" and _is_module(node):
                continue
            inputs.append(node.name)
            bound = "constant" if node.op == "get_attr" else ""
            values[node.name] = value_of(node, reading.bindings.get(node.name, bound))
        elif node.op == "output":
            returned = node.args[0] if isinstance(node.args[0], (list, tuple)) else node.args
            outputs = tuple(taken_out.get(result, result.name) if _is_value(result) else None for result in returned)
        elif node not in taken_out:
            made = [part for _, part in sorted(parts[node].items())] if node in parts else [node]
            nodes.append(_node(node, tuple(part.name for part in made), taken_out, reading, groups))
            values.update({part.name: value_of(part, reading.bindings.get(part.name, "")) for part in made})
    return GraphParts(tuple(nodes), values, tuple(inputs), outputs)


def _node(
    node: torch.fx.Node,
    made: tuple[str, ...],
    taken_out: Mapping[torch.fx.Node, str],
    reading: Reading,
    groups: dict[Any, str],
) -> Node:
    # The namespace, name and overload of the op that the node calls
    target = node.target
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
    inputs, names, attributes = _arguments(node, taken_out)
    # The op that the node was decomposed from, and the name of the decomposed call; both "" if it was not decomposed
    before = parts_of_op(node.meta.get("original_aten"))
    now = parts_of_op(node.target)
    if before is None or now is None or before[:2] == now[:2]:
        original, group = ("", "")
    else:
        name = ".".join(before[:2])
        call = node.meta.get(CALL, (node.meta.get("seq_nr"), node.meta.get("stack_trace")))
        key = (name, call)
        original, group = (name, groups.setdefault(key, f"{name}#{len(groups) + 1}"))
    stack = str(node.meta.get("stack_trace") or "").rstrip()
    return Node(
        name=node.name,
        op=op,
        domain=domain,
        overload=overload,
        phase=reading.phase,
        module=_module(node, reading),
        source=line_in_stack(stack, reading.script),
        stack=stack,
        sequence=sequence_of(node),
        original=original,
        group=group,
        inputs=inputs,
        input_names=names,
        outputs=made,
        attributes=attributes,
    )


def _arguments(
    node: torch.fx.Node, taken_out: Mapping[torch.fx.Node, str]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    """Return the values that a node takes, the argument name of each, and the other arguments as attributes."""
    inputs: list[str] = []
    names: list[str] = []
    attributes: dict[str, Any] = {}
    argument_names = _argument_names(node.target if node.op == "call_function" else None)
    named = [
        (argument_names[at] if at < len(argument_names) else f"argument_{at}", argument)
        for at, argument in enumerate(node.args)
    ]
    for name, argument in (*named, *node.kwargs.items()):
        operands = [leaf for leaf in _leaves(argument) if _is_value(leaf)]
        inputs += [taken_out.get(operand, operand.name) for operand in operands]
        names += [name] * len(operands)
        # A list of values and numbers is recorded twice: in `view(x, [s0, 4])`, s0 is an input, the list an attribute.
        if argument is not None and not (operands and len(operands) == len(list(_leaves(argument)))):
            attributes[name] = _plain(argument, taken_out)
    return tuple(inputs), tuple(names), attributes


@functools.cache
def _argument_names(target: Callable[..., Any] | None) -> Sequence[str]:
    if target is None:
        return ("self",)
    if parts_of_op(target) is not None:
        return [argument.name for argument in arguments_of(target)]
    try:
        parameters = inspect.signature(target).parameters.values()
    except (ValueError, TypeError):  # a builtin of torch, which calls the op of the same name
        overloads = overloads_of(getattr(target, "__name__", ""))
        schema = arguments_of(overloads[0]) if overloads else []
        return [argument.name for argument in schema if not argument.keyword_only]
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def _leaves(argument: Any) -> Iterator[Any]:
    if isinstance(argument, (list, tuple)):
        for item in argument:
            yield from _leaves(item)
    elif isinstance(argument, dict):
        for item in argument.values():
            yield from _leaves(item)
    elif argument is not None:
        yield argument


def _plain(argument: Any, taken_out: Mapping[torch.fx.Node, str]) -> Any:
    """Return an argument in the form of a record: text, numbers that JSON can represent, and lists of these."""
    if isinstance(argument, torch.fx.Node):
        return taken_out.get(argument, argument.name)
    if type(argument) is float:
        return argument if math.isfinite(argument) else str(argument)
    if type(argument) in (bool, int, str):
        return argument
    if isinstance(argument, (list, tuple)) and not any(isinstance(item, (list, tuple)) for item in argument):
        return [_plain(item, taken_out) for item in argument]
    return str(argument).removeprefix("torch.")


def _module(node: torch.fx.Node, reading: Reading) -> str | None:
    if stack := stack_of(node):
        return module_path(stack)
    sequence = sequence_of(node)
    if sequence is not None and sequence in reading.modules:
        return reading.modules[sequence]
    return "" if reading.phase != "backward" and node.meta.get("stack_trace") else None


def modules_by_sequence(nodes: Sequence[Node]) -> dict[int, str]:
    """Return the module of each autograd sequence number: that of the first node with this number."""
    modules: dict[int, str] = {}
    for node in nodes:
        if node.sequence is not None and node.module is not None:
            modules.setdefault(node.sequence, node.module)
    return modules


def value_of(node: torch.fx.Node, binding: str = "") -> Value:
    """Return the value of a node. Facts that the compiler has not recorded are missing."""
    example = _example(node)
    if isinstance(example, torch.Tensor):
        sizes = tuple(size if type(size) is int else str(size) for size in example.shape)
        return Value(str(example.dtype).removeprefix("torch."), sizes, binding)
    kinds = ((torch.SymBool, bool, "bool"), (torch.SymInt, int, "int64"), (torch.SymFloat, float, "float64"))
    for symbolic, plain, dtype in kinds:
        if isinstance(example, (symbolic, plain)):
            return Value(dtype, (), binding)
    return Value(binding=binding)


def _example(node: torch.fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


def _is_value(argument: Any) -> bool:
    return isinstance(argument, torch.fx.Node) and not (argument.op == "get_attr" and _is_module(argument))


def _is_module(node: torch.fx.Node) -> bool:
    """Return whether a `get_attr` names a subgraph, which a higher-order op takes as its body."""
    owner = node.graph.owning_module
    attribute: Any = owner
    for name in str(node.target).split("."):
        attribute = getattr(attribute, name, None)
    return isinstance(attribute, torch.nn.Module)
