"""Blocks of two aligned steps: which wait for which, and which stand in each other's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx

from .storage_flow import StorageFlow


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes of both sides that stand for each other; `paired` where each side has the same op there."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    paired: bool

    def of(self, side: str) -> tuple[int, ...]:
        return self.a if side == "a" else self.b

    @property
    def is_pair(self) -> bool:
        """Whether it is one call on each side."""
        return self.paired and len(self.a) == 1 and len(self.b) == 1


def waiting(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> networkx.DiGraph:
    """Which block waits for which, on either side."""
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


def cycles(graph: networkx.DiGraph) -> list[set[int]]:
    """The blocks that wait for each other."""
    return [one for one in networkx.strongly_connected_components(graph) if len(one) > 1]


def homes(blocks: Sequence[Block], side: str) -> dict[int, int]:
    """The block of each node of a side, by its number."""
    return {node: number for number, block in enumerate(blocks) for node in block.of(side)}


def in_place_of_each_other(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block]:
    """The blocks, where one that only side a has and one that only side b has are one, if what they make is read by the
    same argument of the same op: a pooling module that is made where it is called, and so has no place in the model but
    its class's name, and another one that is called in its place. Two blocks of which one waits for the other stay two.
    """
    wanted = dict.fromkeys(_replacements(a, b, blocks))
    graph = waiting(a, b, blocks) if wanted else networkx.DiGraph()
    joined: dict[int, int] = {}
    for mine, yours in wanted:
        if mine in joined or yours in joined.values():
            continue
        if networkx.has_path(graph, mine, yours) or networkx.has_path(graph, yours, mine):
            continue
        graph.add_edges_from([(before, mine) for before in graph.pred[yours]])
        graph.add_edges_from([(mine, after) for after in graph.succ[yours]])
        graph.remove_node(yours)
        joined[mine] = yours
    taken = set(joined.values())
    both = {mine: Block(blocks[mine].a, blocks[yours].b, paired=False) for mine, yours in joined.items()}
    return [both.get(number, block) for number, block in enumerate(blocks) if number not in taken]


def _replacements(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Numbers of blocks of one side alone whose results a pair of ops reads at the same place, that of side a first."""
    alone = {number for number, block in enumerate(blocks) if not (block.a and block.b)}
    if not alone:
        return
    left, right = homes(blocks, "a"), homes(blocks, "b")
    for block in blocks:
        if not block.is_pair:
            continue
        for mine, yours in zip(a.nodes[block.a[0]].reads, b.nodes[block.b[0]].reads, strict=False):
            one, other = a.makers.get(mine.value), b.makers.get(yours.value)
            if one is not None and other is not None and {left[one], right[other]} <= alone:
                yield left[one], right[other]
