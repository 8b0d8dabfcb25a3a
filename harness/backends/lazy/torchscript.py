"""TorchScript's optimised graph as plain data: constants folded into attributes, lists into the nodes they go
to."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...torch_private.lazy_graphs import torchscript_schema
from .lazy_calls import plain

NUMBERS = ("aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit", "prim::profile")
"""Nodes that hand on what they are given: a scalar tensor as a number."""

LISTS = ("prim::ListConstruct", "prim::TupleConstruct")


@dataclass(frozen=True, slots=True)
class ScriptNode:
    """One op. `inputs` are values, `names` what the op's schema calls them, `attributes` the constants."""

    domain: str
    op: str
    overload: str
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptGraph:
    """One optimised graph. `inputs` are the parameters p0, p1 and so on; `constants` the tensors in it."""

    inputs: tuple[str, ...]
    nodes: tuple[ScriptNode, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]


class _TorchScriptReading:
    """The values of a graph while it is read: constants, lists, and names that stand for others."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.lists: dict[str, list[str]] = {}
        self.same: dict[str, str] = {}

    def name(self, value: Any) -> str:
        name = str(value.debugName())
        return self.same.get(name, name)

    def fold(self, node: Any) -> bool:
        """Take a node that becomes part of those that use it; says whether it is one."""
        kind = node.kind()
        if kind == "prim::Constant":
            self.constants[self.name(node.output())] = None if node.mustBeNone() else node.output().toIValue()
        elif kind in NUMBERS and node.inputsSize() == node.outputsSize() == 1:
            self.same[node.output().debugName()] = self.name(node.input())
        elif kind in LISTS:
            names = [self.name(one) for one in node.inputs()]
            made = self.name(node.output())
            if all(one in self.constants for one in names):
                self.constants[made] = [self.constants[one] for one in names]
            else:
                self.lists[made] = [one for one in names if self.constants.get(one, self) is not None]
        else:
            return False
        return True


def read(graph: Any) -> ScriptGraph:
    """Read a `torch._C.Graph`."""
    reading = _TorchScriptReading()
    inputs = tuple(one.debugName() for one in graph.inputs())
    nodes = [_node(one, reading) for one in graph.nodes() if not reading.fold(one)]
    outputs = tuple(reading.name(one) for one in graph.outputs())
    used = dict.fromkeys(name for node in nodes for name in node.inputs)
    constants = tuple(name for name in (*used, *outputs) if name in reading.constants)
    return ScriptGraph(inputs, tuple(nodes), outputs, tuple(dict.fromkeys(constants)))


def _node(node: Any, reading: _TorchScriptReading) -> ScriptNode:
    domain, _, op = node.kind().partition("::")
    overload, arguments = _schema(node.schema())
    inputs: list[str] = []
    names: list[str] = []
    attributes: dict[str, Any] = {}
    for position, value in enumerate(node.inputs()):
        argument = arguments[position] if position < len(arguments) else f"argument {position}"
        name = reading.name(value)
        if name in reading.constants and not hasattr(reading.constants[name], "untyped_storage"):
            if reading.constants[name] is not None:
                attributes[argument] = plain(reading.constants[name])
            continue
        taken = list(_flat(name, reading))
        inputs += taken
        names += [argument] * len(taken)
    outputs = tuple(str(one.debugName()) for one in node.outputs())
    return ScriptNode(domain, op, overload, tuple(inputs), tuple(names), outputs, attributes)


def _flat(name: str, reading: _TorchScriptReading) -> Iterator[str]:
    if name in reading.lists:
        for one in reading.lists[name]:
            yield from _flat(one, reading)
    else:
        yield name


@functools.cache
def _schema(text: str) -> tuple[str, Sequence[str]]:
    """The overload and the names of the arguments in a schema's text; nothing for a node that has none."""
    if "(" not in text or text.startswith("("):
        return "", ()
    schema = torchscript_schema(text)
    return schema.overload_name, tuple(one.name for one in schema.arguments)
