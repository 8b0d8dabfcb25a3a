"""The blocks of two aligned steps: which blocks wait for each other, and which replace each other."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx

from .storage_flow import StorageFlow


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes of both sides that correspond; `paired` is True if both sides have the same op in the block."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    paired: bool

    def of(self, side: str) -> tuple[int, ...]:
        return self.a if side == "a" else self.b

    @property
    def is_pair(self) -> bool:
        """True if the block is one call on each side."""
        return self.paired and len(self.a) == 1 and len(self.b) == 1


def waiting(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> networkx.DiGraph:
    """Return the graph of blocks with an edge from each block to those that wait for it on either side."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(blocks)))
    for flow, side in ((a, "a"), (b, "b")):
        home = homes(blocks, side)
        for number, node in enumerate(flow.nodes):
            for use in node.reads:
                maker = flow.makers.get(use.value)
                if maker is not None and home[maker] != home[number]:
                    graph.add_edge(home[maker], home[number])
    return graph


def in_executable_order(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block] | None:
    """Return the blocks in an order in which both sides can execute them, None if some blocks wait for each other.

    Of the blocks that can be executed next, the one whose calls come first on side a comes first.
    """
    followers: list[set[int]] = [set() for _ in blocks]
    for flow, side in ((a, "a"), (b, "b")):
        home = homes(blocks, side)
        for number, node in enumerate(flow.nodes):
            own = home[number]
            for use in node.reads:
                maker = flow.makers.get(use.value)
                if maker is not None and home[maker] != own:
                    followers[home[maker]].add(own)
    awaited = [0] * len(blocks)
    for numbers in followers:
        for number in numbers:
            awaited[number] += 1
    places = _places(blocks, len(b.nodes))
    ready = [(places[number], number) for number, count in enumerate(awaited) if not count]
    heapq.heapify(ready)
    ordered: list[Block] = []
    while ready:
        _, first = heapq.heappop(ready)
        ordered.append(blocks[first])
        for number in followers[first]:
            awaited[number] -= 1
            if not awaited[number]:
                heapq.heappush(ready, (places[number], number))
    return ordered if len(ordered) == len(blocks) else None


def _places(blocks: Sequence[Block], count_b: int) -> list[tuple[int, int]]:
    """Return the place of each block: its first node of side a and of side b.

    A block without nodes of side a takes the first node of side a in the last preceding block that has some.
    """
    starts = {node: block.a[0] for block in blocks for node in block.b if block.a}
    before, last = [], -1
    for node in range(count_b):
        last = starts.get(node, last)
        before.append(last)
    return [((block.a[0] if block.a else before[block.b[0]]), (block.b[0] if block.b else -1)) for block in blocks]


def cycles(graph: networkx.DiGraph) -> list[set[int]]:
    """Return the sets of blocks that wait for each other."""
    return [component for component in networkx.strongly_connected_components(graph) if len(component) > 1]


def homes(blocks: Sequence[Block], side: str) -> dict[int, int]:
    """Return the number of each node's block, for the nodes of a side."""
    return {node: number for number, block in enumerate(blocks) for node in block.of(side)}


def in_place_of_each_other(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block]:
    """Merge a block that only side a has with a block that only side b has, if the same argument of the same op takes
    their results.

    An example is a pooling module that the script creates only when it calls it, and that the other side replaces with
    a different module. All that is known of such a module's place in the model is the name of its class. Two blocks are
    not merged if one waits for the other.
    """
    replacements = dict.fromkeys(_replacements(a, b, blocks))
    graph = waiting(a, b, blocks) if replacements else networkx.DiGraph()
    joined: dict[int, int] = {}
    for number_a, number_b in replacements:
        if number_a in joined or number_b in joined.values():
            continue
        if networkx.has_path(graph, number_a, number_b) or networkx.has_path(graph, number_b, number_a):
            continue
        graph.add_edges_from([(before, number_a) for before in graph.pred[number_b]])
        graph.add_edges_from([(number_a, after) for after in graph.succ[number_b]])
        graph.remove_node(number_b)
        joined[number_a] = number_b
    removed = set(joined.values())
    joint_blocks = {
        number_a: Block(blocks[number_a].a, blocks[number_b].b, paired=False) for number_a, number_b in joined.items()
    }
    return [joint_blocks.get(number, block) for number, block in enumerate(blocks) if number not in removed]


def _replacements(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Yield pairs of block numbers: a block that only side a has, and one that only side b has. The two ops of a pair
    take the results of these blocks as the same argument."""
    alone = {number for number, block in enumerate(blocks) if not (block.a and block.b)}
    if not alone:
        return
    left, right = homes(blocks, "a"), homes(blocks, "b")
    for block in blocks:
        if not block.is_pair:
            continue
        for left_use, right_use in zip(a.nodes[block.a[0]].reads, b.nodes[block.b[0]].reads, strict=False):
            left_maker, right_maker = a.makers.get(left_use.value), b.makers.get(right_use.value)
            if left_maker is not None and right_maker is not None and {left[left_maker], right[right_maker]} <= alone:
                yield left[left_maker], right[right_maker]
