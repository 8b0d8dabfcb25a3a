"""The ops of one step, collected as they are executed and cut into graphs where the phase changes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakIdKeyDictionary

from numdrift.kernels.expectation import tensors_in

from ...records.tools.graph_record import Graph, Node, Value
from ...tape.recording.followed_calls import OpCall
from ...torch_private.dispatching import current_autograd_node, next_sequence_number, sequence_number
from ...torch_private.operators import arguments_of, op_parts, written_names
from ..called_operators import plain

# The values that tensors carry. They are the edges of a graph whose ops are observed one by one.

INPUT = "given"
"""The name of a value that no op of the graph has made."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value, the number of the write that made it (counted from the start), and its place in memory at that time.

    If the memory has been released since then, it may hold anything.
    """

    name: str
    written: int
    place: tuple[int, ...] | None
    storage: StorageWeakRef | None

    @property
    def is_there(self) -> bool:
        return self.storage is not None and not self.storage.expired()


class Edges:
    """The names of the values that tensors carry, followed through views, in-place writes and autograd's saved tensors.

    A tensor is identified by its Python object. A tensor that comes back as a different object, as saved tensors of
    autograd do, is identified by its place in memory. A tensor carries the value that was last written to its memory.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self._by_object = WeakIdKeyDictionary()
        self._by_place: dict[Hashable, Carried] = {}
        self._by_storage: dict[int, Carried] = {}
        self._names: Counter[str] = Counter()
        self._writes = 0

    def read(self, tensor: torch.Tensor, wanted: str = INPUT) -> str:
        """Return the name of the value that a tensor carries now. A new tensor gets a value named after `wanted`."""
        place = _place(tensor)
        carried: Carried | None = self._by_object.get(tensor)
        if place is not None:
            if carried is None or carried.place != place:  # the script has replaced the tensor's memory
                carried = _if_there(self._by_place.get(place))
                if carried is not None:
                    self._by_object[tensor] = carried
            overwritten = _if_there(self._by_storage.get(place[0]))
            if carried is not None and overwritten is not None and overwritten.written > carried.written:
                carried = overwritten
        return self.write(tensor, wanted) if carried is None else carried.name

    def write(self, tensor: torch.Tensor, wanted: str, *, in_place: bool = False) -> str:
        """Give a tensor a new value, named after `wanted`."""
        name = wanted
        while name in self.values:
            self._names[wanted] += 1
            name = f"{wanted}:{self._names[wanted]}"
        self._writes += 1
        place = _place(tensor)
        carried = Carried(name, self._writes, place, StorageWeakRef(tensor.untyped_storage()) if place else None)
        self._by_object[tensor] = carried
        if place is not None:
            self._by_place[place] = carried
            if in_place:  # every other view of this memory carries the new value too
                self._by_storage[place[0]] = carried
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.values[name] = Value(dtype, tuple(int(size) for size in tensor.shape))
        return name


def _if_there(carried: Carried | None) -> Carried | None:
    return carried if carried is not None and carried.is_there else None


def _place(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the place of a tensor's elements: storage, offset, sizes and strides; None if it has no memory."""
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
    """The nodes of a step in the order of their execution, and the bindings of their edges."""

    def __init__(self) -> None:
        self._edges = Edges()
        self._nodes: list[Node] = []
        self._names: Counter[str] = Counter()
        self._bindings: dict[str, str] = {}
        self._forward: dict[int, Node] = {}
        self._newest_sequence = next_sequence_number() - 1

    def name(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind the values that these tensors carry now to the script's names for the tensors."""
        for binding, tensor in tensors.items():
            self.bind(tensor, binding)

    def bind(self, tensor: torch.Tensor, binding: str) -> None:
        kind, _, name = binding.partition(" ")
        wanted = f"{name}.grad" if kind == "gradient" else name or kind
        self._bindings.setdefault(self._edges.read(tensor, wanted), binding)

    def add(self, call: OpCall, outputs: Any, place: Node) -> None:
        """Add an op that has run. `place` has the op's phase, module and source line."""
        operation = call.operation
        written = written_names(operation)
        schema = [parameter.name for parameter in arguments_of(operation)]
        inputs: list[str] = []
        names: list[str] = []
        attributes: dict[str, Any] = {}
        targets: list[torch.Tensor] = []
        for argument, value in (*zip(schema, call.args, strict=False), *call.kwargs.items()):
            tensors = list(tensors_in(value))
            if not tensors and value is not None:
                attributes[argument] = plain(value)
            inputs += [self._edges.read(tensor) for tensor in tensors]
            names += [argument] * len(tensors)
            if argument in written:
                targets += tensors
        op, domain, overload = op_parts(operation)
        self._names[op] += 1
        name = op if self._names[op] == 1 else f"{op}_{self._names[op] - 1}"
        # An in-place op returns the tensor that it wrote to: one new value, not two.
        made = [tensor for tensor in tensors_in(outputs) if not any(tensor is target for target in targets)]
        produced = [self._edges.write(tensor, name, in_place=True) for tensor in targets]
        produced += [self._edges.write(tensor, name) for tensor in made]
        node = replace(
            place,
            name=name,
            op=op,
            domain=domain,
            overload=overload,
            inputs=tuple(inputs),
            input_names=tuple(names),
            outputs=tuple(produced),
            attributes=attributes,
        )
        # Add the autograd sequence number. An op in the backward takes the module and source of its forward op.
        running = current_autograd_node()
        newest = next_sequence_number() - 1
        number = newest if running is None else sequence_number(running)
        if running is not None and number is not None:
            node = replace(node, sequence=number)
            if number in self._forward:
                before = self._forward[number]
                node = replace(node, module=before.module, source=before.source)
        elif running is None and newest != self._newest_sequence:
            self._newest_sequence = newest
            node = self._forward[newest] = replace(node, sequence=newest)
        self._nodes.append(node)

    def graphs(self, stage: str, step: int) -> Iterator[Graph]:
        """Yield this step's graphs without names, one for each sequence of consecutive nodes of the same phase."""
        stretches = [tuple(nodes) for _, nodes in groupby(self._nodes, key=lambda node: node.phase)]
        for number, nodes in enumerate(stretches):
            later = {
                value_name for stretch in stretches[number + 1 :] for node in stretch for value_name in node.inputs
            }
            made = dict.fromkeys(value_name for node in nodes for value_name in node.outputs)
            used = dict.fromkeys(value_name for node in nodes for value_name in node.inputs)
            inputs = tuple(value_name for value_name in used if value_name not in made)
            outputs = tuple(
                value_name
                for value_name in made
                if value_name in later or value_name in self._bindings or value_name not in used
            )
            values: dict[str, Value] = {}
            for name in (*inputs, *made):
                bound = self._bindings.get(name, "")
                if not bound and name not in made:
                    bound = "input" if name.startswith(INPUT) else f"saved {name}"
                values[name] = replace(self._edges.values[name], binding=bound)
            # The hash depends on the ops and the kinds of their tensors, not on the names of values.
            numbers: dict[str, int] = {}
            text = hashlib.sha256()
            for node in nodes:
                edges = [numbers.setdefault(value_name, len(numbers)) for value_name in (*node.inputs, *node.outputs)]
                output_values = [values[value_name] for value_name in node.outputs]
                kinds = [(value.dtype, value.shape, value.binding.partition(" ")[0]) for value in output_values]
                attributes = sorted(node.attributes.items(), key=str)
                text.update(repr((node.full_op, node.phase, node.module, edges, attributes, kinds)).encode())
            yield Graph(
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
