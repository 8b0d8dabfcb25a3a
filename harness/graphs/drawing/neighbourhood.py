"""A part of a large graph that can be looked at: the nodes around some of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import replace

from ...records.graph_record import Graph


def neighbourhood(graph: Graph, centres: Collection[str], most: int) -> Graph:
    """The graph of the nodes nearest to the centres along its edges, `most` of them at most.

    Without centres, or with none that is in the graph, these are the largest piece that hangs together among
    its first nodes. What the part takes from the rest is among its inputs; its outputs are those of the graph
    alone."""
    if len(graph.nodes) <= most:
        return graph
    known = [node.name for node in graph.nodes if node.name in centres]
    nodes = _nearest(_neighbours(graph), known, most) if known else _first(graph, most)
    kept = tuple(node for node in graph.nodes if node.name in nodes)
    made = {name for node in kept for name in node.outputs}
    taken = dict.fromkeys(name for node in kept for name in node.inputs if name and name not in made)
    outputs = tuple(name for name in graph.outputs if name in made)
    return replace(graph, nodes=kept, inputs=tuple(taken), outputs=outputs)


def _first(graph: Graph, most: int) -> set[str]:
    """The largest piece of the first nodes that take what others make."""
    made = {name for node in graph.nodes for name in node.outputs}
    inner = [node for node in graph.nodes if not made.isdisjoint(node.inputs)] or list(graph.nodes)
    neighbours = _neighbours(replace(graph, nodes=tuple(inner[:most])))
    left = [node.name for node in inner[:most]]
    largest: set[str] = set()
    while left:
        piece = _nearest(neighbours, left[:1], most)
        left = [name for name in left if name not in piece]
        largest = max(largest, piece, key=len)
    return largest


def _nearest(neighbours: Mapping[str, Collection[str]], starts: Collection[str], most: int) -> set[str]:
    found = dict.fromkeys(list(starts)[:most])
    queue = deque(found)
    while queue and len(found) < most:
        for name in neighbours.get(queue.popleft(), ()):
            if name not in found and len(found) < most:
                found[name] = None
                queue.append(name)
    return set(found)


def _neighbours(graph: Graph) -> Mapping[str, Collection[str]]:
    """Who makes what a node takes, and who takes what it makes."""
    makers = {output: node.name for node in graph.nodes for output in node.outputs}
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for node in graph.nodes:
        for name in node.inputs:
            if name in makers and makers[name] != node.name:
                found[node.name][makers[name]] = None
                found[makers[name]][node.name] = None
    return found
