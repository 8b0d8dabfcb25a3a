"""Which nodes of the graph that Inductor was handed a node of its final graph stands for.

Inductor edits the graph in place: most nodes stay, some are replaced by others. What replaced what is read off the
nodes that stayed: where one of them took a node that is gone, it takes the replacement now. The replacement stands
for that node, and for all that had gone with it and led to nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

Nodes = Sequence[torch.fx.Node]


class GraphBefore:
    """The graph as it was, to be compared once it has been edited."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._arguments = {one: _arguments(one) for one in graph.nodes}
        self._names = {one: one.name for one in graph.nodes}

    def covered_by(self, graph: torch.fx.Graph) -> dict[str, tuple[str, ...]]:
        """For each node of the edited graph, the nodes of the graph before that it stands for, by name."""
        kept = [one for one in graph.nodes if one in self._arguments]
        stands_for: dict[torch.fx.Node, dict[torch.fx.Node, None]] = {
            one: {one: None} if one in self._arguments else {} for one in graph.nodes
        }
        exits: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        for one in kept:
            for gone, arrived in _exchanged(self._arguments[one], _arguments(one), self._arguments):
                exits.setdefault(arrived, []).append(gone)
        alive = set(graph.nodes)
        ends = {gone for found in exits.values() for gone in found}
        for made, replaced in exits.items():
            if made not in self._arguments:
                region = self._region(replaced, alive, ends.difference(replaced))
                stands_for[made].update(dict.fromkeys(region))
        _share_with_made(graph, stands_for, self._arguments)
        return {one.name: self._sorted(found) for one, found in stands_for.items()}

    def _region(
        self, gone: Iterable[torch.fx.Node], alive: set[torch.fx.Node], other_ends: set[torch.fx.Node]
    ) -> list[torch.fx.Node]:
        """These nodes and all gone ones that they were computed from, up to what another node replaces."""
        found: dict[torch.fx.Node, None] = {}
        pending = list(gone)
        while pending:
            one = pending.pop()
            if one in found or one in alive or one in other_ends:
                continue
            found[one] = None
            pending += self._arguments.get(one, ())
        return list(found)

    def _sorted(self, found: Iterable[torch.fx.Node]) -> tuple[str, ...]:
        wanted = set(found)
        if len(wanted) < 2:
            return tuple(self._names[one] for one in wanted)
        return tuple(name for one, name in self._names.items() if one in wanted)


def _arguments(one: torch.fx.Node) -> list[torch.fx.Node]:
    """Every value that a node takes, one that it takes twice twice, in order."""
    found: list[torch.fx.Node] = []
    torch.fx.map_arg((one.args, one.kwargs), found.append)
    return found


def _exchanged(
    before: Nodes, after: Nodes, known: Mapping[torch.fx.Node, object]
) -> list[tuple[torch.fx.Node, torch.fx.Node]]:
    """What a node took and what it takes instead, in pairs: by position where their number is the same."""
    if len(before) == len(after):
        return [(old, new) for old, new in zip(before, after, strict=True) if old is not new]
    gone = [one for one in before if one not in after]
    arrived = [one for one in after if one not in before and one not in known]
    return [(old, new) for old in gone for new in arrived]


def _share_with_made(
    graph: torch.fx.Graph,
    stands_for: dict[torch.fx.Node, dict[torch.fx.Node, None]],
    known: Mapping[torch.fx.Node, object],
) -> None:
    """Let each new node that stands for nothing yet stand for what those stand for that it was made for."""
    for one in reversed(graph.nodes):
        if one in known or stands_for[one]:
            continue
        for user in one.users:
            if user not in known:
                stands_for[one].update(stands_for[user])
