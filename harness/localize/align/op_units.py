"""The units of one side of a step, which are paired with those of the other side.

A unit consists of the nodes that represent one op of the script.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ...tape.serving.list_calls import PREFIX
from ...torch_private.operators import view_behind
from .repeats import recomputed
from .storage_flow import FlowNode, StorageFlow, readers_of

ALIASES = {
    "_native_batch_norm_legit": "native_batch_norm",
    "_native_batch_norm_legit_functional": "native_batch_norm",
    "_batch_norm_with_update": "native_batch_norm",
    "_batch_norm_with_update_functional": "native_batch_norm",
    "_low_memory_max_pool_with_offsets": "max_pool2d_with_indices",
    "_unsafe_index": "index",
    "_unsafe_masked_index": "index",
    "norm": "linalg_vector_norm",
    "reshape": "clone",
}
"""Eager mode's names of ops, by the ops' names in compilers and on devices with other kernels."""

STATES = ("parameter ", "buffer ", "state ")
"""The prefixes of the names of a step's initial values."""


@dataclass(frozen=True, slots=True)
class OpUnit:
    """The nodes of one side that represent one op of the script.

    place: the op's pass, its phase, and its module or, for an optimizer's op, its parameters.
    name: the op's name.
    look: the shapes of its results, the parameters, buffers and optimizer states that it reads, and the gradients that
        its results are a part of.
    readers: the names of the ops that read its results.
    """

    nodes: tuple[int, ...]
    place: tuple[Hashable, ...]
    name: str
    look: tuple[Hashable, ...]
    readers: tuple[str, ...]


def op_name(node: FlowNode) -> str:
    """Return the name by which an op is paired: that of the op that it was decomposed from, without the underscore of
    an in-place op."""
    compiled = node.call.compiled
    name = compiled.origin.split(".")[1] if compiled is not None else node.call.name
    name = name.removeprefix(PREFIX)
    name = name if name == "_" else name.removesuffix("_")
    return ALIASES.get(name, name)


def units_of(flow: StorageFlow, *, modules: bool) -> list[OpUnit]:
    """Return the units of a side in the order of their calls; without `modules` their places contain no module."""
    # A group consists of the nodes that one op was decomposed into, including those that the backward graph recomputes.
    groups: dict[Hashable, list[int]] = {}
    repeats, group_of = recomputed(flow), dict[int, Hashable]()
    for number, node in enumerate(flow.nodes):
        compiled = node.call.compiled
        key = number if compiled is None else (compiled.graph, compiled.group, node.call.phase, node.iteration)
        group_of[number] = group_of[repeats[number]] if number in repeats else key
        groups.setdefault(group_of[number], []).append(number)
    states = state_slots(flow)
    # The gradient's name for each value that becomes a part of a parameter's gradient, only by addition or by a
    # script's hook on the sum. The loop runs backwards, so that it also reaches the terms of nested sums.
    gradient_of = {use.value: name for name, use in flow.watched.items() if name.startswith("gradient ")}
    for node in reversed(flow.nodes):
        adds = op_name(node) == "add" or view_behind(node.execution.operation) is not None
        if node.call.phase == "backward" and (adds or _is_hooked(node)):
            names = {gradient_of[output.value] for output in node.made if output.value in gradient_of}
            for use in node.reads if len(names) == 1 else ():
                gradient_of.setdefault(use.value, *names)
    readers = readers_of(flow)
    units = []
    for members in groups.values():
        node = flow.nodes[members[0]]
        last = flow.nodes[[member for member in members if member not in repeats][-1]]
        call = node.call
        owner = call.owners if call.module is None else (call.module if modules else None)
        reads = (use.value.slot for member in members for use in flow.nodes[member].reads)
        read = {states[slot] for slot in reads if slot in states}
        gradients = sorted(gradient_of[use.value] for use in last.made if use.value in gradient_of)
        look = (*(use.view.size for use in last.made), *sorted(read), *gradients)
        together = set(members)
        made_values = {use.value for member in members for use in flow.nodes[member].made}
        outside_readers = {
            reader for value in made_values for reader in readers.get(value, ()) if reader not in together
        }
        reading = tuple(sorted(op_name(flow.nodes[reader]) for reader in outside_readers))
        units.append(OpUnit(tuple(members), (node.iteration, call.phase, owner), op_name(node), look, reading))
    # Restore the order of the calls, which may differ from the order of execution.
    orders = [flow.nodes[unit.nodes[0]].call.order for unit in units]
    if None in orders:
        return units
    return [unit for _, unit in sorted(zip(orders, units, strict=True), key=lambda pair: pair[0] or 0)]


def _is_hooked(node: FlowNode) -> bool:
    """Check whether a node computes one tensor from one other tensor, outside of all modules and graphs, as a
    gradient's hook does."""
    sizes = [use.view.size for use in (*node.reads, *node.makes) if use is not None]
    return node.call.module is None and node.call.compiled is None and len(sizes) == 2 and sizes[0] == sizes[1]


def state_slots(flow: StorageFlow) -> dict[int, str]:
    """Return the storages of parameters, buffers and optimizer states, with their names.

    Without writes in place, one state has several storages: that of its value at the end, that of the value from which
    this was computed, and so on back to the start.

        m = m * 0.9; m = m + g    three storages of one state; the first argument of each call is its previous value
    """
    slot_names = {use.value.slot: name for name, use in flow.watched.items() if name.startswith(STATES)}
    for name, begin in flow.tape.starts.items():
        use = flow.watched.get(name)
        chain: list[int] = []
        while use is not None and use.value.slot != begin.slot:
            chain.append(use.value.slot)
            maker = flow.makers.get(use.value)
            reads = () if maker is None else flow.nodes[maker].reads
            use = reads[0] if reads and reads[0].view.size == begin.size else None
        if use is not None:
            slot_names |= dict.fromkeys((*chain, begin.slot), name)
    for node in flow.nodes:
        source = node.reads[0].value.slot if node.reads else None
        if source in slot_names and view_behind(node.execution.operation):  # a copy of a view of the state
            slot_names |= {use.value.slot: slot_names[source] for use in node.made}
    return slot_names
