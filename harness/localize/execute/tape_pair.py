"""Two aligned tapes of one step: their blocks, their links, and the kernels that execute each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...tape.replaying.unwritten import NO_VALUES
from ...tape.tape import Phase
from ...tape.uncollected import uncollected
from ..align.alignment import align
from ..align.blocks import Block
from ..align.links import Link, Links
from ..align.repeats import late_repeats, repetitions
from ..align.storage_flow import SIDES, FlowNode, FlowValue, Side, StorageFlow, Use, other
from ..align.value_links import linked
from .prepared_call import Kernels, PlainKernels
from .step_memory import Flows, Lifetimes

END = -2
"""The block number of the end of the step, which reads the values by which steps are compared, and the batch."""


@dataclass(slots=True, eq=False)
class TapePair:
    """Two aligned tapes of one step.

    kernels: the kernels that execute each side.
    own_reads: the blocks that are wired differently, in which each side reads its own tensors.
    home: for each node of a side, the number of its block.
    readers: for each value of a side, the blocks that read it.
    late: for each side, the nodes that are meant to repeat an earlier one but read memory that was overwritten since,
        each with the node that made what they read.
    """

    flows: Flows
    blocks: Sequence[Block]
    links: Links
    lifetimes: Lifetimes
    kernels: Mapping[Side, Kernels]
    own_reads: set[int] = field(default_factory=set)
    home: dict[Side, dict[int, int]] = field(init=False)
    readers: dict[Side, dict[FlowValue, set[int]]] = field(init=False)
    late: dict[Side, dict[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.home = {
            side: {node: number for number, block in enumerate(self.blocks) for node in block.of(side)}
            for side in SIDES
        }
        self.late = {side: late_repeats(flow, repetitions(flow)) for side, flow in self.flows.items()}
        # END reads the watched values, by which steps are compared, and the arguments of the first model.
        self.readers = {side: {} for side in SIDES}
        for side in SIDES:
            flow = self.flows[side]
            for number, node in enumerate(flow.nodes):
                for use in node.reads:
                    self.readers[side].setdefault(use.value, set()).add(self.home[side][number])
            for use in (*flow.watched.values(), *flow.batch.values()):
                self.readers[side].setdefault(use.value, set()).add(END)

    def devices(self) -> list[str]:
        draws = (node.call.draw for flow in self.flows.values() for node in flow.nodes)
        return sorted({state.device for draw in draws if draw is not None for state in draw.states})

    def nodes(self, number: int, side: Side) -> list[FlowNode]:
        """Return the nodes of a block on one side."""
        nodes = self.flows[side].nodes
        return [nodes[node] for node in self.blocks[number].of(side)]

    def made(self, number: int, side: Side) -> list[Use]:
        """Return the values that a side of a block makes."""
        return [use for node in self.nodes(number, side) for use in node.made]

    def readers_of(self, number: int) -> set[int]:
        """Return the blocks that read what a block makes, on either side; the block itself may be one of them."""
        made = ((side, use.value) for side in SIDES for use in self.made(number, side))
        return {reader for side, value in made for reader in self.readers[side].get(value, ())}

    def all_nodes(self, number: int) -> list[FlowNode]:
        """Return the nodes of a block, side a's first."""
        return [*self.nodes(number, "a"), *self.nodes(number, "b")]

    def names(self, number: int, side: Side) -> list[str]:
        """Return the ops of a block on one side."""
        return [node.call.name for node in self.nodes(number, side)]

    def all_names(self, number: int) -> set[str]:
        """Return the ops of a block on both sides."""
        return {node.call.name for node in self.all_nodes(number)}

    def phase(self, number: int) -> Phase:
        """Return the phase of a block's first call."""
        return self.all_nodes(number)[0].call.phase

    def module(self, number: int) -> str | None:
        """Return the module of a block's first call."""
        return self.all_nodes(number)[0].call.module

    def is_same_op(self, number: int) -> bool:
        """Check that a block is one op on both sides; one of the sides may execute it repeatedly."""
        return self.blocks[number].paired and len(self.all_names(number)) == 1

    def counterparts(self, side: Side, use: Use) -> tuple[Use, Use] | None:
        """Return a side's value and its counterpart on the other side, side a's first.

        Return None if there is no counterpart, or if one of the two holds no value, such as a library's workspace.
        """
        link = self.links.of[side].get(use.value)
        if link is None or self._holds_none(side, use.value) or self._holds_none(other(side), link.value):
            return None
        own, far = Use(link.own_view, use.value), Use(link.far_view, link.value)
        return (own, far) if side == "a" else (far, own)

    def _holds_none(self, side: Side, value: FlowValue) -> bool:
        node = self.flows[side].makers.get(value)
        if node is None:
            return False
        call, makes = self.flows[side].nodes[node].call, self.flows[side].nodes[node].makes
        return any((made := makes[at]) is not None and made.value == value for at in NO_VALUES.get(call.name, ()))

    def reads_for(self, side: Side, number: int) -> list[tuple[Use, Use]]:
        """Return the inputs of a block with different ops, each with a value of the other side that corresponds to it
        here, although it is linked to another one.

        If side b scales a sum before both sides normalize it, side a's normalization reads the sum, and side b's ops
        read the scaled sum. Executed on side b's values, both must read the scaled sum. So must the backward of side
        a's normalization, although the other side's backward does not read that value.
        """
        far_side = other(side)
        if not (self.blocks[number].a and self.blocks[number].b):
            return []
        far_inputs = self._inputs(far_side, number)
        own_of = {link.value: (value, link) for value in far_inputs if (link := self.links.of[far_side].get(value))}
        reads = []
        for value in self._inputs(side, number):
            counterpart = self.links.of[side].get(value)
            if counterpart is not None and counterpart.value not in far_inputs:
                found = own_of.get(value) or self._changed_by_others(side, value, counterpart.value)
                if found is not None:
                    far_value, link = found
                    reads.append((Use(link.far_view, value), Use(link.own_view, far_value)))
        return reads

    def _inputs(self, side: Side, number: int) -> dict[FlowValue, None]:
        """Return the values that a side of a block reads and does not make."""
        nodes = self.nodes(number, side)
        made = {use.value for node in nodes for use in node.made}
        return {use.value: None for node in nodes for use in node.reads if use.value not in made}

    def _changed_by_others(self, side: Side, value: FlowValue, counterpart: FlowValue) -> tuple[FlowValue, Link] | None:
        """Return what the ops that only the other side has make of a value's counterpart, with its link to the value.

        Return None if the counterpart has other readers, or if these ops make nothing that is linked to the value.
        """
        far_side, found = other(side), None
        while True:
            readers = self.readers[far_side].get(found[0] if found else counterpart, set())
            if len(readers) != 1 or END in readers or any(self.blocks[reader].of(side) for reader in readers):
                return found
            first_nodes = (
                self.flows[far_side].nodes[node]
                for reader in readers
                for node in self.blocks[reader].of(far_side)
                if node not in self.links.again[far_side]
            )
            made = (use.value for node in first_nodes for use in node.made)
            links = self.links.of[far_side]
            changed = {far: link for far in made if (link := links.get(far)) and link.value == value}
            # An op may read what an earlier op of the same block has made: there is nothing later then.
            if len(changed) != 1 or (found is not None and found[0] in changed):
                return found
            (found,) = changed.items()

    def maker(self, side: Side, value: FlowValue) -> int:
        """Return the number of the block that makes a value; -1 for a value from before the step."""
        node = self.flows[side].makers.get(value)
        return -1 if node is None else self.home[side][node]


@uncollected()
def paired(a: StorageFlow, b: StorageFlow, *, own_batch: bool = True, same_source: bool = True) -> TapePair:
    """Align two tapes; both sides get this process's kernels. For `own_batch`, see `linked`, for `same_source`
    `align`."""
    flows: Flows = {"a": a, "b": b}
    blocks = align(a, b, same_source=same_source)
    links = linked(a, b, blocks, own_batch=own_batch)
    plain = PlainKernels()
    return TapePair(flows, blocks, links, Lifetimes(flows, links, blocks), {"a": plain, "b": plain})
