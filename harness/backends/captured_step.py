"""Collects the ops of one step as they are executed, and cuts them into graphs where the phase changes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakIdKeyDictionary

from numdrift.kernels.expectation import tensors_in

from ..records.graph_record import Graph, Node, Value
from ..torch_private.dispatching import current_autograd_node, next_sequence_number, sequence_number
from ..torch_private.operators import arguments_of, written_names

# Which value a tensor carries: the edges of a graph of ops that are seen one after the other.

GIVEN = "given"
"""What a value is called that nothing in the graph has made."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value, when it was written (the how-manieth write since the start), and where in memory it then was:
    memory that was given back since may hold anything."""

    name: str
    written: int
    place: tuple[int, ...] | None
    storage: StorageWeakRef | None

    @property
    def is_there(self) -> bool:
        return self.storage is not None and not self.storage.expired()


class Edges:
    """Names the values that tensors carry, through views, writes in place and what autograd has saved.

    A tensor is known by its Python object; one that comes back as another object (autograd gives saved
    tensors back like that) by its place in memory. What was written to a tensor's memory later is what it
    carries.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self._by_object = WeakIdKeyDictionary()
        self._by_place: dict[Hashable, Carried] = {}
        self._by_storage: dict[int, Carried] = {}
        self._names: Counter[str] = Counter()
        self._writes = 0

    def read(self, tensor: torch.Tensor, wanted: str = GIVEN) -> str:
        """The name of the value that a tensor carries now; one that was never met gets a value, named
        `wanted`."""
        carried = self._carried(tensor)
        return self.write(tensor, wanted) if carried is None else carried.name

    def write(self, tensor: torch.Tensor, wanted: str, *, in_place: bool = False) -> str:
        """Give a tensor a new value, named after `wanted`."""
        name = self._free_name(wanted)
        self._writes += 1
        place = _place(tensor)
        carried = Carried(name, self._writes, place, StorageWeakRef(tensor.untyped_storage()) if place else None)
        self._by_object[tensor] = carried
        if place is not None:
            self._by_place[place] = carried
            if in_place:
                self._by_storage[place[0]] = carried
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.values[name] = Value(dtype, tuple(int(size) for size in tensor.shape))
        return name

    def _free_name(self, wanted: str) -> str:
        name = wanted
        while name in self.values:
            self._names[wanted] += 1
            name = f"{wanted}:{self._names[wanted]}"
        return name

    def _carried(self, tensor: torch.Tensor) -> Carried | None:
        place = _place(tensor)
        found: Carried | None = self._by_object.get(tensor)
        if place is None:
            return found
        if found is None or found.place != place:  # the script has put other memory under the tensor
            found = _if_there(self._by_place.get(place))
            if found is not None:
                self._by_object[tensor] = found
        overwritten = _if_there(self._by_storage.get(place[0]))
        if found is not None and overwritten is not None and overwritten.written > found.written:
            return overwritten
        return found


def _if_there(carried: Carried | None) -> Carried | None:
    return carried if carried is not None and carried.is_there else None


def _place(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Where the elements of a tensor are: its storage, offset, sizes and strides; None where it has no
    memory."""
    if tensor.layout != torch.strided or tensor.is_meta:
        return None
    try:
        storage = tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None
    if not storage:
        return None
    return (storage, tensor.storage_offset(), *tensor.shape, -1, *tensor.stride())


class CapturedStep:
    """The nodes of a step, in the order of their execution, and what their edges are bound to."""

    def __init__(self) -> None:
        self._edges = Edges()
        self._nodes: list[Node] = []
        self._names: Counter[str] = Counter()
        self._bindings: dict[str, str] = {}
        self._forward: dict[int, Node] = {}
        self._newest_sequence = next_sequence_number() - 1

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
        written = written_names(operation)
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
        running = current_autograd_node()
        if running is not None:
            number = sequence_number(running)
            if number is None:
                return node
            before = self._forward.get(number)
            if before is None:
                return replace(node, sequence=number)
            return replace(node, sequence=number, module=before.module, source=before.source)
        newest = next_sequence_number() - 1
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
        # The hash is the same for stretches of the same ops on the same kinds of tensors, whatever their
        # values are called
        numbers: dict[str, int] = {}
        text = hashlib.sha256()
        for node in nodes:
            edges = [numbers.setdefault(one, len(numbers)) for one in (*node.inputs, *node.outputs)]
            kinds = [
                (values[one].dtype, values[one].shape, values[one].binding.partition(" ")[0]) for one in node.outputs
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
            hash=text.hexdigest()[:16],
        )

    def _value(self, name: str, is_input: bool) -> Value:
        value = self._edges.values[name]
        bound = self._bindings.get(name, "")
        if not bound and is_input:
            bound = "input" if name.startswith(GIVEN) else f"saved {name}"
        return replace(value, binding=bound)


def _named(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call under the names of the op's schema."""
    names = [one.name for one in arguments_of(operation)]
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
