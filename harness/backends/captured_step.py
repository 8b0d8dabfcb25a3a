"""The ops of one step, collected as they are executed, and cut into graphs where the phase changes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from .. import torch_private
from ..records.graph_record import Graph, Node, Value
from .graph_edges import GIVEN, Edges


class CapturedStep:
    """The nodes of a step, in the order of their execution, and what their edges are bound to."""

    def __init__(self) -> None:
        self._edges = Edges()
        self._nodes: list[Node] = []
        self._names: Counter[str] = Counter()
        self._bindings: dict[str, str] = {}
        self._forward: dict[int, Node] = {}
        self._newest_sequence = torch_private.next_sequence_number() - 1

    def name(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Say what the script calls these tensors: what they carry now, and what reads them from now on."""
        for binding, tensor in tensors.items():
            self.bind(tensor, binding)

    def bind(self, tensor: torch.Tensor, binding: str) -> None:
        kind, _, name = binding.partition(" ")
        wanted = f"{name}.grad" if kind == "gradient" else name or kind
        self._bindings.setdefault(self._edges.read(tensor, wanted), binding)

    def add(
        self,
        operation: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: Any,
        place: Node,
    ) -> None:
        """Add an op that has run. `place` carries its phase, module and source line."""
        written = torch_private.written_names(operation)
        arguments = list(_named(operation, args, kwargs))
        inputs, names, attributes, targets = [], [], {}, []
        for argument, value in arguments:
            tensors = list(tensors_in(value))
            if not tensors and value is not None:
                attributes[argument] = _plain(value)
            inputs += [self._edges.read(tensor) for tensor in tensors]
            names += [argument] * len(tensors)
            if argument in written:
                targets += tensors
        name = self._free_name(operation)
        made = [tensor for tensor in tensors_in(outputs) if not any(tensor is one for one in targets)]
        produced = [self._edges.write(tensor, name, in_place=True) for tensor in targets]
        produced += [self._edges.write(tensor, name) for tensor in made]
        node = replace(
            place,
            name=name,
            op=str(operation).split(".")[1],
            domain=operation.namespace,
            overload=_overload(operation),
            inputs=tuple(inputs),
            input_names=tuple(names),
            outputs=tuple(produced),
            attributes=attributes,
        )
        self._nodes.append(self._tied(node))

    def _tied(self, node: Node) -> Node:
        """The node with its autograd sequence number; one in the backward with the place of its forward."""
        running = torch_private.current_autograd_node()
        if running is not None:
            number = torch_private.sequence_number(running)
            if number is None:
                return node
            before = self._forward.get(number)
            if before is None:
                return replace(node, sequence=number)
            return replace(node, sequence=number, module=before.module, source=before.source)
        newest = torch_private.next_sequence_number() - 1
        if newest == self._newest_sequence:
            return node
        self._newest_sequence = newest
        tied = replace(node, sequence=newest)
        self._forward[newest] = tied
        return tied

    def _free_name(self, operation: Any) -> str:
        op = str(operation).split(".")[1]
        self._names[op] += 1
        return op if self._names[op] == 1 else f"{op}_{self._names[op] - 1}"

    def graphs(self, stage: str, step: int) -> Iterator[Graph]:
        """The graphs of this step, one a stretch of nodes of one phase; their names are still to be given."""
        stretches = [tuple(nodes) for _, nodes in groupby(self._nodes, key=lambda node: node.phase)]
        for number, nodes in enumerate(stretches):
            later = {one for others in stretches[number + 1 :] for node in others for one in node.inputs}
            yield self._graph(stage, step, nodes, later)

    def _graph(self, stage: str, step: int, nodes: tuple[Node, ...], later: set[str]) -> Graph:
        made = dict.fromkeys(one for node in nodes for one in node.outputs)
        taken = dict.fromkeys(one for node in nodes for one in node.inputs)
        inputs = tuple(one for one in taken if one not in made)
        outputs = tuple(one for one in made if one in later or one in self._bindings or one not in taken)
        values = {name: self._value(name, name in inputs) for name in (*inputs, *made)}
        return Graph(
            name="",
            mode="",
            stage=stage,
            phase=nodes[0].phase,
            step=step,
            nodes=nodes,
            values=values,
            inputs=inputs,
            outputs=outputs,
            hash=_hash(nodes, values),
        )

    def _value(self, name: str, is_input: bool) -> Value:
        value = self._edges.values[name]
        bound = self._bindings.get(name, "")
        if not bound and is_input:
            bound = "input" if name.startswith(GIVEN) else f"saved {name}"
        return replace(value, binding=bound)


def _named(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call under the names of the op's schema."""
    names = [one.name for one in torch_private.arguments_of(operation)]
    yield from zip(names, args, strict=False)
    yield from kwargs.items()


def _overload(operation: Any) -> str:
    name = str(operation).split(".")[2]
    return "" if name == "default" else name


def _plain(value: Any) -> Any:
    """An argument as the record holds it: numbers and lists of them as they are, anything else as text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float)) for one in value):
        return list(value)
    return str(value).removeprefix("torch.")


def _hash(nodes: Sequence[Node], values: Mapping[str, Value]) -> str:
    """The same for stretches of the same ops on the same kinds of tensors, whatever their values are called."""
    numbers: dict[str, int] = {}
    text = hashlib.sha256()
    for node in nodes:
        edges = [numbers.setdefault(one, len(numbers)) for one in (*node.inputs, *node.outputs)]
        kinds = [
            (values[one].dtype, values[one].shape, values[one].binding.partition(" ")[0])
            for one in node.outputs
        ]
        facts = (
            node.full_op,
            node.phase,
            node.module,
            edges,
            sorted(node.attributes.items(), key=str),
            kinds,
        )
        text.update(repr(facts).encode())
    return text.hexdigest()[:16]
