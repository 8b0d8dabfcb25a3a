"""Hybrids of two tapes: each block is executed as one side has it, with that side's kernels.

With `recorded_step` of the tape's example, and another factor on side b. Block 0 is the forward's product:

    >>> pair = paired(*(flow_of(recorded_step(lambda weight: factor * weight)) for factor in (3.0, 3.5)))
    >>> for mixture in Mixture("a"), Mixture("b"), Mixture("a", blocks=frozenset([0])):
    ...     print(execute(pair, mixture))
    {'loss': tensor(9.), 'gradient 0 weight': tensor([3., 3.])}
    {'loss': tensor(10.5000), 'gradient 0 weight': tensor([3.5000, 3.5000])}
    {'loss': tensor(10.5000), 'gradient 0 weight': tensor([3., 3.])}

The last one has side b's loss and side a's gradient: a backward of its own belongs to that forward, see swap_sites.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ..tape.replay import executed, given, set_apart
from .alignment import align
from .blocks import Block
from .step_memory import Flows, Lifetimes, Memory, Stand, Unbound, is_one
from .storage_flow import SIDES, FlowNode, FlowValue, Side, StorageFlow, Use, layout_of, other
from .value_links import Links, common_reads, linked

Values = dict[str, torch.Tensor]

END = -2
"""Stands for what follows the last block, and for the batch as a whole."""


class Kernels(Protocol):
    """How one side executes its calls."""

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Execute the node with that number on these arguments, those that it writes included; gives its flat
        outputs."""


class PlainKernels:
    """This process's own kernels."""

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        return executed(node.execution, arguments, keywords)


@dataclass(slots=True, eq=False)
class TapePair:
    """Two tapes of one step, aligned. `kernels` are those that each side is executed by.

    `own_reads` are the blocks in which each side reads tensors of its own: those that are wired differently.
    """

    flows: Flows
    blocks: Sequence[Block]
    links: Links
    lifetimes: Lifetimes
    kernels: Mapping[Side, Kernels]
    own_reads: set[int] = field(default_factory=set)
    home: dict[Side, dict[int, int]] = field(init=False)
    readers: dict[Side, dict[FlowValue, set[int]]] = field(init=False)

    def __post_init__(self) -> None:
        self.home = {
            side: {node: number for number, block in enumerate(self.blocks) for node in block.of(side)}
            for side in SIDES
        }
        # END reads what the step is compared by, and what the first model is called with
        self.readers = {side: {} for side in SIDES}
        for side in SIDES:
            flow = self.flows[side]
            for number, node in enumerate(flow.nodes):
                for use in node.reads:
                    self.readers[side].setdefault(use.value, set()).add(self.home[side][number])
            for use in (*flow.watched.values(), *flow.given.values()):
                self.readers[side].setdefault(use.value, set()).add(END)

    def devices(self) -> list[str]:
        draws = (node.call.draw for flow in self.flows.values() for node in flow.nodes)
        return sorted({one.device for draw in draws if draw is not None for one in draw.states})

    def is_one_op(self, number: int) -> bool:
        """Whether a block is one op on both sides, which one of them may execute once more."""
        block = self.blocks[number]
        names = {self.flows[side].nodes[node].call.name for side in SIDES for node in block.of(side)}
        return block.paired and len(names) == 1

    def maker(self, side: Side, value: FlowValue) -> int:
        """The block that makes a value, -1 for what comes from before the step."""
        node = self.flows[side].makers.get(value)
        return -1 if node is None else self.home[side][node]


def paired(a: StorageFlow, b: StorageFlow, *, own_batch: bool = True) -> TapePair:
    """Align two tapes. Both sides have this process's kernels. `own_batch`: see `linked`."""
    flows: Flows = {"a": a, "b": b}
    blocks = align(a, b)
    links = linked(a, b, blocks, own_batch=own_batch)
    plain = PlainKernels()
    return TapePair(flows, blocks, links, Lifetimes(flows, links, blocks), {"a": plain, "b": plain})


Instead = Mapping[int, Sequence[Stand]]
"""By slot, views of the other side that are read in place of a call's own."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A hybrid: `base`, but with these blocks and these inputs (by side a's value) from the other side."""

    base: Side
    blocks: Collection[int] = frozenset()
    inputs: Collection[FlowValue] = frozenset()

    def side(self, block: int) -> Side:
        return other(self.base) if block in self.blocks else self.base


class MixtureExecution:
    """One execution of a mixture, block by block, by the pair's kernels unless others are given."""

    def __init__(self, pair: TapePair, mixture: Mixture, kernels: Mapping[Side, Kernels] | None = None) -> None:
        far = other(mixture.base)
        sources: dict[FlowValue, Side] = {
            value: (far if value in mixture.inputs else mixture.base) for value in pair.links.of["a"]
        }
        self.pair = pair
        self.mixture = mixture
        self.kernels = kernels or pair.kernels
        self.memory = Memory(pair.flows, pair.links, pair.lifetimes, sources)

    def run(self, number: int) -> None:
        """Execute a block and let go what nothing reads after it."""
        self.run_as(self.mixture.side(number), number, self.memory)
        self.memory.block_ended(number)

    def run_all(self) -> MixtureExecution:
        """Execute every block."""
        for number in range(len(self.pair.blocks)):
            self.run(number)
        return self

    def run_as(self, side: Side, number: int, memory: Memory) -> None:
        """Execute a block as one side has it, in this memory."""
        pair, block = self.pair, self.pair.blocks[number]
        for node in block.of(side):
            stands_for = self.instead(side, node, number) if pair.is_one_op(number) else {}
            run_node(pair.flows[side], node, side, self.kernels[side], memory, stands_for)

    def values(self) -> Values:
        """What the step is compared by, by the names of both sides. A value that one side lacks is not there where
        that side made it."""
        base = self.mixture.base
        mine, theirs = self.pair.flows[base].watched, self.pair.flows[other(base)].watched
        found: Values = {}
        for name, use in mine.items():
            far = theirs.get(name)
            if far is None:
                with suppress(Unbound):
                    found[name] = self.memory.tensor(base, use).clone()
                continue
            if self._comes_later(base, use, far):
                with suppress(Unbound):
                    found[name] = self.memory.tensor(other(base), far).clone()
                    continue
            found[name] = self.memory.tensor(base, use).clone()
        for name in theirs.keys() - mine.keys():
            with suppress(Unbound):
                found[name] = self.memory.tensor(other(base), theirs[name]).clone()
        return found

    def given(self, name: str) -> torch.Tensor:
        """What the first model is called with, which both sides know by this name. Raises Unbound."""
        base = self.mixture.base
        mine, far = (self.pair.flows[side].given[name] for side in (base, other(base)))
        if self._comes_later(base, mine, far):
            with suppress(Unbound):
                return self.memory.tensor(other(base), far).clone()
        return self.memory.tensor(base, mine).clone()

    def instead(self, side: Side, node: int, number: int) -> dict[int, list[Stand]]:
        """By slot, what a paired call reads of the other side in place of its own, where that was made later: each of
        its views of that slot, as the parts of one product that a fused attention takes."""
        if number in self.pair.own_reads:
            return {}
        block, found = self.pair.blocks[number], dict[int, list[Stand]]()
        mine, theirs = self.pair.flows[side].nodes[node], self.pair.flows[other(side)].nodes[block.of(other(side))[0]]
        for ours, far in common_reads(mine, theirs):
            # What shows other parts of one content does not stand for each other; of other contents it is not known.
            link = self.pair.links.of[side].get(ours.value)
            unknown = link is None or link.value != far.value or not is_one(link)
            alike = ours.view.size == far.view.size and (unknown or layout_of(ours.view) == layout_of(far.view))
            # What was left out, as a cast that one side alone has, is not there to be read.
            maker = self.pair.maker(other(side), far.value)
            left_out = maker >= 0 and self.mixture.side(maker) == side and link is not None and link.value != far.value
            if alike and not left_out and self._comes_later(side, ours, far):
                found.setdefault(ours.value.slot, []).append((ours, far))
        return found

    def _comes_later(self, side: Side, mine: Use, theirs: Use) -> bool:
        """Whether of two values for one place the other side's was made, and after this one, or this one was not."""
        ours, yours = self.pair.maker(side, mine.value), self.pair.maker(other(side), theirs.value)
        if ours >= 0 and self.mixture.side(ours) != side:
            return True
        return yours >= 0 and self.mixture.side(yours) != side and yours > ours


def execute(pair: TapePair, mixture: Mixture) -> Values:
    """The watched values of a hybrid.

    Raises NotReplayable (Unbound where blocks cannot be mixed so), and whatever an op raises on values that
    are not the recorded ones.
    """
    with set_apart(pair.devices()):
        return MixtureExecution(pair, mixture).run_all().values()


def run_node(flow: StorageFlow, number: int, side: Side, kernels: Kernels, memory: Memory, instead: Instead) -> None:
    """Execute one node. What it writes is a copy, for the other side may still read what was there."""
    node = flow.nodes[number]
    storages = storages_read(node, side, memory, instead)
    for use in node.writes:
        storages[use.value.slot] = storages[use.value.slot].clone()

    arguments, keywords = given(node.call, lambda view: memory.viewed(side, storages[view.slot], view))
    with torch.set_grad_enabled(node.call.grad):
        outputs = kernels.execute(number, node, arguments, keywords)
    for made, output in zip(node.makes, outputs, strict=True):
        if made is not None:
            memory.bind(side, made, output)
    for use in node.writes:
        memory.put(side, use.value, storages[use.value.slot])


def storages_read(node: FlowNode, side: Side, memory: Memory, instead: Instead) -> dict[int, torch.UntypedStorage]:
    """The storages that a node reads, by slot."""
    storages: dict[int, torch.UntypedStorage] = {}
    for use in node.reads:
        slot = use.value.slot
        if slot not in storages:
            storages[slot] = storage_read(memory, side, use, instead.get(slot), node)
    return storages


def storage_read(
    memory: Memory, side: Side, use: Use, far: Sequence[Stand] | None, node: FlowNode
) -> torch.UntypedStorage:
    """The storage that a node reads: the other side's in place of its own where that is to be had."""
    if far:
        views = {layout_of(one.view) for one in node.reads if one.value.slot == use.value.slot}
        is_written = any(one.value.slot == use.value.slot for one in node.writes)
        with suppress(Unbound):
            return memory.across(side, far, alone=len(views) == 1 and not is_written)
    return memory.storage(side, use.value)
