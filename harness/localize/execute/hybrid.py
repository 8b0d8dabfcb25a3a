"""Hybrids of two tapes: each block is executed as on one of the sides, with that side's kernels.

In this example, `recorded_step` is from the example in the tape module, and the sides multiply by different factors.
Block 0 is the product in the forward:

    >>> pair = paired(*(flow_of(recorded_step(lambda weight: factor * weight)) for factor in (3.0, 3.5)))
    >>> for hybrid in Hybrid("a"), Hybrid("b"), Hybrid("a", blocks=frozenset([0])):
    ...     print(execute(pair, hybrid))
    {'loss': tensor(9.), 'gradient 0 weight': tensor([3., 3.])}
    {'loss': tensor(10.5000), 'gradient 0 weight': tensor([3.5000, 3.5000])}
    {'loss': tensor(10.5000), 'gradient 0 weight': tensor([3., 3.])}

The last hybrid has side b's loss and side a's gradient. To be consistent, it must also take the backward of block 0
from side b: see swap_sites.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ...tape.replaying.replay import call_arguments, set_apart
from ..align.links import is_turned_product, transposed
from ..align.storage_flow import SIDES, FlowNode, FlowValue, Side, StorageFlow, Use, common_reads, layout_of, other
from .prepared_call import Kernels, PreparedCall
from .step_memory import Memory, Stand, Unbound, has_same_layout
from .tape_pair import TapePair

Values = dict[str, torch.Tensor]

Instead = Mapping[int, Sequence[Stand]]
"""By slot, the views of the other side that a call reads in place of its own."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A hybrid: side `base`, with these blocks and inputs (as side a's values) from the other side."""

    base: Side
    blocks: Collection[int] = frozenset()
    inputs: Collection[FlowValue] = frozenset()

    def side(self, block: int) -> Side:
        return other(self.base) if block in self.blocks else self.base


class HybridExecution:
    """One execution of a hybrid, block by block, with the pair's kernels or with `kernels` if specified."""

    def __init__(self, pair: TapePair, hybrid: Hybrid, kernels: Mapping[Side, Kernels] | None = None) -> None:
        self.pair = pair
        self.hybrid = hybrid
        self.kernels = kernels or pair.kernels
        self.memory = Memory(pair.flows, pair.links, pair.lifetimes, hybrid.base, frozenset(hybrid.inputs))
        # By side, what both versions of the swapped blocks make. A block of the base that reads none of it reads only
        # its own side's values.
        self._of_swapped: dict[Side, set[FlowValue]] = {
            side: {use.value for block in hybrid.blocks for use in pair.made(block, side)} for side in SIDES
        }

    def run(self, number: int) -> None:
        """Execute a block and release the values that no later block reads."""
        self.run_as(self.hybrid.side(number), number, self.memory)
        self.memory.block_ended(number)

    def stops(self, numbers: Collection[int]) -> Iterator[tuple[int, Memory]]:
        """Execute the blocks up to the last one in `numbers`. After each block in `numbers`, yield its number and the
        memory from before the block.

        The values that no later block reads are still in both memories.
        """
        for number in range(max(numbers, default=-1) + 1):
            if number not in numbers:
                self.run(number)
                continue
            before = self.memory.fork()
            self.run_as(self.hybrid.side(number), number, self.memory)
            yield number, before
            self.memory.block_ended(number)

    def run_all(self) -> HybridExecution:
        """Execute every block."""
        for number in range(len(self.pair.blocks)):
            self.run(number)
        return self

    def run_as(self, side: Side, number: int, memory: Memory) -> None:
        """Execute one side's version of a block, in this memory."""
        for node, instead in self.instead(side, number).items():
            run_node(self.pair.flows[side], node, side, self.kernels[side], memory, instead)

    def values(self) -> Values:
        """Return the values by which steps are compared, by name.

        A value that only one side has is missing if the other side executes its block.
        """
        base, far_side = self.hybrid.base, other(self.hybrid.base)
        watched, far_watched = self.pair.flows[base].watched, self.pair.flows[far_side].watched
        values = {name: self._latest(use, far_watched[name]) for name, use in watched.items() if name in far_watched}
        for side, uses in ((base, watched), (far_side, far_watched)):
            for name in [name for name in uses if name not in values]:
                with suppress(Unbound):
                    values[name] = self.memory.tensor(side, uses[name]).clone()
        return values

    def argument(self, name: str) -> torch.Tensor:
        """Return the argument `name` of the first model. Both sides have it. Raises Unbound."""
        own, far = (self.pair.flows[side].batch[name] for side in (self.hybrid.base, other(self.hybrid.base)))
        return self._latest(own, far)

    def _latest(self, own: Use, far: Use) -> torch.Tensor:
        """Return the base's value, or the other side's counterpart if the counterpart was made later."""
        base = self.hybrid.base
        if self._comes_later(base, own, far):
            with suppress(Unbound):
                return self.memory.tensor(other(base), far).clone()
        return self.memory.tensor(base, own).clone()

    def instead(self, side: Side, number: int) -> dict[int, Instead]:
        """Return, for each node of a side of a block, the views of the other side that it reads in place of its own.

        The values of these views were made later than the node's own. A slot may have several such views, for example
        of the parts of one product that a fused attention reads.
        """
        pair, nodes = self.pair, self.pair.blocks[number].of(side)
        if side == self.hybrid.base and number not in self.hybrid.blocks and not self._may_read_far(number):
            return {node: {} for node in nodes}
        if number in pair.own_reads:
            return {node: self._replacements(side, self._turned_factors(side, number)) for node in nodes}
        if pair.is_same_op(number):
            far_node = pair.nodes(number, other(side))[0]
            return {
                node: self._replacements(side, common_reads(pair.flows[side].nodes[node], far_node)) for node in nodes
            }
        reads = pair.reads_for(side, number)
        own_values = {node: {use.value for use in pair.flows[side].nodes[node].reads} for node in nodes if reads}
        return {
            node: self._replacements(side, [uses for uses in reads if uses[0].value in own_values[node]])
            for node in nodes
        }

    def _may_read_far(self, number: int) -> bool:
        """Check whether a block of the base may read values of the other side.

        It may if its ops differ, or if one of its two versions reads what a version of a swapped block makes.
        """
        if not self.hybrid.blocks:
            return False
        if not self.pair.is_same_op(number):
            return True
        return any(
            use.value in self._of_swapped[side]
            for side in SIDES
            for node in self.pair.nodes(number, side)
            for use in node.reads
        )

    def _turned_factors(self, side: Side, number: int) -> list[Stand]:
        """Return the factors of a product with those of the other side, if that side computes the transpose."""
        pair = self.pair
        nodes_a, nodes_b = (pair.nodes(number, each) for each in SIDES)
        if len(nodes_a) != 1 or len(nodes_b) != 1 or not is_turned_product(nodes_a[0], nodes_b[0], pair.links):
            return []
        factors = zip(nodes_a[0].reads, reversed(nodes_b[0].reads), strict=True)
        linked = [(a, b) for a, b in factors if pair.links.are_linked(a.value, b.value)]
        return [(a, transposed(b)) if side == "a" else (b, transposed(a)) for a, b in linked]

    def _replacements(self, side: Side, reads: Sequence[Stand]) -> Instead:
        """Return, by slot, those of the other side's views that are later than the corresponding ones of this side."""
        replacements: dict[int, list[Stand]] = {}
        for own, far in reads:
            # If both sides store the value in the same layout, two views correspond only if they show the same part.
            # Otherwise, the layouts of the views prove nothing.
            link = self.pair.links.of[side].get(own.value)
            unknown = link is None or link.value != far.value or not has_same_layout(link)
            alike = own.view.size == far.view.size and (unknown or layout_of(own.view) == layout_of(far.view))
            # A value that this hybrid omits, such as a cast that only one side has, cannot be read.
            maker = self.pair.maker(other(side), far.value)
            left_out = maker >= 0 and self.hybrid.side(maker) == side and link is not None and link.value != far.value
            if alike and not left_out and self._comes_later(side, own, far):
                replacements.setdefault(own.value.slot, []).append((own, far))
        return replacements

    def _comes_later(self, side: Side, own: Use, far: Use) -> bool:
        """Check whether the other side's value is the later one of two corresponding values, or the only one that was
        made."""
        own_maker, far_maker = self.pair.maker(side, own.value), self.pair.maker(other(side), far.value)
        if own_maker >= 0 and self.hybrid.side(own_maker) != side:
            return True
        return far_maker >= 0 and self.hybrid.side(far_maker) != side and far_maker > own_maker


def execute(pair: TapePair, hybrid: Hybrid) -> Values:
    """Return the watched values of a hybrid.

    Raises NotReplayable (Unbound if these blocks cannot be combined), and whatever an op raises on values that are not
    the recorded ones.
    """
    with set_apart(pair.devices()):
        return HybridExecution(pair, hybrid).run_all().values()


def run_node(flow: StorageFlow, number: int, side: Side, kernels: Kernels, memory: Memory, instead: Instead) -> None:
    """Execute one node. It writes to copies, because the other side may still read the former contents."""
    node = flow.nodes[number]
    storages: dict[int, torch.UntypedStorage] = {}
    if node.writes or instead:
        storages = storages_read(node, side, memory, instead)
        for use in node.writes:
            storages[use.value.slot] = storages[use.value.slot].clone()
        call = prepared(number, node, side, memory, storages)
    else:
        uses = iter(node.reads)
        call = PreparedCall(number, node, *call_arguments(node.call, lambda view: memory.read(side, next(uses))))
    if torch.is_grad_enabled() == node.call.grad:
        outputs = kernels.execute(call)
    else:
        with torch.set_grad_enabled(node.call.grad):
            outputs = kernels.execute(call)
    for made, output in zip(node.makes, outputs, strict=True):
        if made is not None:
            memory.bind(side, made, output)
    for use in node.writes:
        memory.put(side, use.value, storages[use.value.slot])


def prepared(
    number: int, node: FlowNode, side: Side, memory: Memory, storages: Mapping[int, torch.UntypedStorage]
) -> PreparedCall:
    """Return a node with its arguments in these storages, by slot."""
    return PreparedCall(
        number, node, *call_arguments(node.call, lambda view: memory.viewed(side, storages[view.slot], view))
    )


def storages_read(node: FlowNode, side: Side, memory: Memory, instead: Instead) -> dict[int, torch.UntypedStorage]:
    """Return the storages that a node reads, by slot."""
    storages: dict[int, torch.UntypedStorage] = {}
    for use in node.reads:
        slot = use.value.slot
        if slot not in storages:
            storages[slot] = storage_read(memory, side, use, instead.get(slot), node)
    return storages


def storage_read(
    memory: Memory, side: Side, use: Use, far: Sequence[Stand] | None, node: FlowNode
) -> torch.UntypedStorage:
    """Return the storage that a node reads: the other side's if it is available, else that of the node's own side."""
    if far:
        views = {layout_of(read.view) for read in node.reads if read.value.slot == use.value.slot}
        is_written = any(write.value.slot == use.value.slot for write in node.writes)
        with suppress(Unbound):
            return memory.across(side, far, alone=len(views) == 1 and not is_written)
    return memory.storage(side, use.value)
