"""The units of one side of a step, which are paired with those of the other: what stands for one op of the script."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ..tape.list_calls import PREFIX
from ..torch_private.operators import view_behind
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
"""Names under which compilers, and devices with kernels of other ops, know what eager mode calls otherwise."""

STATES = ("parameter ", "buffer ", "state ")
"""How the names of what a step starts from begin."""


@dataclass(frozen=True, slots=True)
class OpUnit:
    """What stands for one op of the script: the nodes of one side, where they are, the op's name, what it
    looks like (the shapes that it makes, the parameters, buffers and optimizer states that it reads, and the
    gradients that it is a part of), and the names of the ops that read what it makes."""

    nodes: tuple[int, ...]
    place: tuple[Hashable, ...]
    name: str
    look: tuple[Hashable, ...]
    readers: tuple[str, ...]


def op_name(node: FlowNode) -> str:
    """The name that an op is paired by: that of what it was decomposed from, and in place or not alike."""
    compiled = node.call.compiled
    name = compiled.origin.split(".")[1] if compiled is not None else node.call.name
    name = name.removeprefix(PREFIX)
    name = name if name == "_" else name.removesuffix("_")
    return ALIASES.get(name, name)


def units_of(flow: StorageFlow, *, modules: bool) -> list[OpUnit]:
    """The units of a side in the order in which they were called. Without `modules` none has one."""
    # Together is what one op was decomposed into, with what the backward graph computes of it once more.
    groups: dict[Hashable, list[int]] = {}
    again, own = recomputed(flow), dict[int, Hashable]()
    for number, node in enumerate(flow.nodes):
        compiled = node.call.compiled
        key = number if compiled is None else (compiled.graph, compiled.group, node.call.phase, node.iteration)
        own[number] = own[again[number]] if number in again else key
        groups.setdefault(own[number], []).append(number)
    states = state_slots(flow)
    # What becomes a part of a parameter's gradient, by addition alone and what a hook of the script's makes of the sum,
    # with the gradient's name: backwards, so that what is added up to a sum that is added up has it too
    ends = {use.value: name for name, use in flow.watched.items() if name.startswith("gradient ")}
    for node in reversed(flow.nodes):
        adds = op_name(node) == "add" or view_behind(node.execution.operation) is not None
        if node.call.phase == "backward" and (adds or _is_hooked(node)):
            names = {ends[made.value] for made in node.made if made.value in ends}
            for use in node.reads if len(names) == 1 else ():
                ends.setdefault(use.value, *names)
    readers = readers_of(flow)
    units = []
    for members in groups.values():
        node = flow.nodes[members[0]]
        last = flow.nodes[[one for one in members if one not in again][-1]]
        call = node.call
        where = call.owners if call.module is None else (call.module if modules else None)
        reads = (use.value.slot for one in members for use in flow.nodes[one].reads)
        read = {states[slot] for slot in reads if slot in states}
        gradients = sorted(ends[use.value] for use in last.made if use.value in ends)
        look = (*(use.view.size for use in last.made), *sorted(read), *gradients)
        together = set(members)
        made = {use.value for one in members for use in flow.nodes[one].made}
        beside = {one for value in made for one in readers.get(value, ()) if one not in together}
        reading = tuple(sorted(op_name(flow.nodes[one]) for one in beside))
        units.append(OpUnit(tuple(members), (node.iteration, call.phase, where), op_name(node), look, reading))
    # As they were called, where that is another order than that in which they were executed
    orders = [flow.nodes[one.nodes[0]].call.order for one in units]
    if None in orders:
        return units
    return [one for _, one in sorted(zip(orders, units, strict=True), key=lambda pair: pair[0] or 0)]


def _is_hooked(node: FlowNode) -> bool:
    """Whether it makes one tensor of another one outside of all modules and graphs, as a gradient's hook does."""
    sizes = [use.view.size for use in (*node.reads, *node.makes) if use is not None]
    return node.call.module is None and node.call.compiled is None and len(sizes) == 2 and sizes[0] == sizes[1]


def state_slots(flow: StorageFlow) -> dict[int, str]:
    """The storages of parameters, buffers and optimizer states, with their names. Where nothing is written in place,
    each is several: what it is at the end, and what that was made from, back to what the step started from.

        m = m * 0.9; m = m + g    three storages of one state, the first argument of each call being what it was before
    """
    found = {use.value.slot: name for name, use in flow.watched.items() if name.startswith(STATES)}
    for name, begin in flow.tape.starts.items():
        use = flow.watched.get(name)
        chain: list[int] = []
        while use is not None and use.value.slot != begin.slot:
            chain.append(use.value.slot)
            maker = flow.makers.get(use.value)
            reads = () if maker is None else flow.nodes[maker].reads
            use = reads[0] if reads and reads[0].view.size == begin.size else None
        if use is not None:
            found |= dict.fromkeys((*chain, begin.slot), name)
    for node in flow.nodes:
        source = node.reads[0].value.slot if node.reads else None
        if source in found and view_behind(node.execution.operation):  # a copy of a view of it
            found |= {use.value.slot: found[source] for use in node.made}
    return found
