"""TorchScript's optimised graph as plain data, aligned with the nodes of the lazy core's IR that it computes.

Constants become attributes of the nodes that take them. The elements of a list become inputs of the nodes that take it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...torch_private.deferred.lazy import torchscript_schema
from ..called_operators import plain
from ..followed_graph import Output
from .lazy_dump import DumpedGraph

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit", "prim::profile")
"""Nodes that only pass on their input, for example a scalar tensor as a number."""

LISTS = ("prim::ListConstruct", "prim::TupleConstruct")


@dataclass(frozen=True, slots=True)
class ScriptNode:
    """One op. `inputs` are values, `names` the op schema's names for them, `attributes` the constants."""

    domain: str
    op: str
    overload: str
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptGraph:
    """One optimised graph. `inputs` are its parameters p0, p1 and so on; `constants` are the tensors embedded in it."""

    inputs: tuple[str, ...]
    nodes: tuple[ScriptNode, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]


def read_torchscript(graph: Any) -> ScriptGraph:
    """Return a `torch._C.Graph` as plain data."""
    constants: dict[str, Any] = {}
    lists: dict[str, list[str]] = {}
    same: dict[str, str] = {}

    def name_of(value: Any) -> str:
        name = str(value.debugName())
        return same.get(name, name)

    def flat(name: str) -> list[str]:
        return [inner for element in lists[name] for inner in flat(element)] if name in lists else [name]

    nodes: list[ScriptNode] = []
    for node in graph.nodes():
        kind = node.kind()
        if kind == "prim::Constant":
            constants[name_of(node.output())] = None if node.mustBeNone() else node.output().toIValue()
            continue
        if kind in NUMBERS and node.inputsSize() == node.outputsSize() == 1:
            same[node.output().debugName()] = name_of(node.input())
            continue
        if kind in LISTS:
            names, list_name = [name_of(element) for element in node.inputs()], name_of(node.output())
            if all(element in constants for element in names):
                constants[list_name] = [constants[element] for element in names]
            else:  # a list of tensors and Nones, as in an index: the Nones are left out
                lists[list_name] = [part for part in names if part not in constants or constants[part] is not None]
            continue
        domain, _, op = kind.partition("::")
        overload, arguments = _schema(node.schema())
        inputs: list[str] = []
        names = []
        attributes: dict[str, Any] = {}
        for position, value in enumerate(node.inputs()):
            argument = arguments[position] if position < len(arguments) else f"argument {position}"
            name = name_of(value)
            if name in constants and not hasattr(constants[name], "untyped_storage"):  # only tensors have one
                if constants[name] is not None:
                    attributes[argument] = plain(constants[name])
                continue
            elements = flat(name)
            inputs += elements
            names += [argument] * len(elements)
        results = tuple(str(result.debugName()) for result in node.outputs())
        nodes.append(ScriptNode(domain, op, overload, tuple(inputs), tuple(names), results, attributes))
    outputs = tuple(name_of(output) for output in graph.outputs())
    used = dict.fromkeys((*(name for node in nodes for name in node.inputs), *outputs))
    parameters = tuple(parameter.debugName() for parameter in graph.inputs())
    return ScriptGraph(parameters, tuple(nodes), outputs, tuple(name for name in used if name in constants))


@functools.cache
def _schema(text: str) -> tuple[str, Sequence[str]]:
    """Return the overload and the names of the arguments in a schema's text; both are empty if there is no schema."""
    if "(" not in text or text.startswith("("):
        return "", ()
    schema = torchscript_schema(text)
    return schema.overload_name, tuple(argument.name for argument in schema.arguments)


# The alignment of an executed lazy graph's IR with the optimised graph: the IR nodes that each optimised node computes.


@dataclass(slots=True)
class Alignment:
    """The correspondence of the IR and the optimised graph.

    outputs: the IR's values that the graph was executed for, None where unknown.
    values: the IR's values, by the value's name in the optimised graph.
    covers: for each node of the optimised graph, by its index, the numbers of the IR nodes that it computes.
    """

    outputs: list[Output | None]
    values: dict[str, Output] = field(default_factory=dict)
    covers: dict[int, list[int]] = field(default_factory=dict)


def align(script: ScriptGraph | None, dump: DumpedGraph) -> Alignment:
    """Align both graphs by following them side by side from their outputs to their inputs."""
    outputs: list[Output | None] = [None] * len(dump.hashes)
    for node in dump.nodes:
        if node.root is not None and node.root < len(outputs):
            outputs[node.root] = (node.number, 0)
    alignment = Alignment(outputs)
    if script is None or len(script.outputs) != len(outputs):
        return alignment
    nodes = {node.number: node for node in dump.nodes}
    makers = {value: (at, which) for at, node in enumerate(script.nodes) for which, value in enumerate(node.outputs)}
    met: set[tuple[str, Output]] = set()
    for position, value in enumerate(script.outputs):
        output = outputs[position]
        if output is None:
            continue
        # The dump shows the node of an output; TorchScript shows which of the node's values it is.
        _, which = makers.get(value, (0, 0))
        if which < len(nodes[output[0]].outputs):
            output = outputs[position] = (output[0], which)
        waiting = [(value, output)]
        while waiting:
            pair = script_value, ir_value = waiting.pop()
            if pair in met:
                continue
            met.add(pair)
            alignment.values.setdefault(script_value, ir_value)
            node = nodes[ir_value[0]]
            if script_value not in makers or node.is_input:
                continue
            index, _ = makers[script_value]
            script_node = script.nodes[index]
            covered = alignment.covers.setdefault(index, [])
            if node.number not in covered:
                covered.append(node.number)
            # Skip a copy that TorchScript has inserted. Otherwise the operands correspond one to one, in order.
            if script_node.op == "clone" and node.op != "clone" and len(script_node.inputs) == 1:
                waiting.append((script_node.inputs[0], ir_value))
                continue
            operands = [operand for operand in node.operands if nodes[operand[0]].op != "Constant"]
            inputs = [name for name in script_node.inputs if name not in script.constants]
            if len(operands) == len(inputs):
                waiting += zip(inputs, operands, strict=True)
    # If an output is not a root in the dump, take the IR value that was paired with it above. Failing that, take the
    # value at the same position of an IR node that the output's maker covers.
    for position, value in enumerate(script.outputs):
        if outputs[position] is None:
            index, which = makers.get(value, (-1, 0))
            covered_nodes = (number for number in alignment.covers.get(index, ()) if which < len(nodes[number].outputs))
            sibling = next(((number, which) for number in covered_nodes), None)
            outputs[position] = alignment.values.get(value) or sibling
    return alignment
