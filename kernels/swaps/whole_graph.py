"""One node in place of the many that a composite op became in a graph, and the many put back as they were.

`fold` takes a graph as the compiler has it and shows each composite call as one node; `unfold` gives exactly
the graph that was folded. Nodes that somebody adds to a folded graph stay when it is unfolded, behind those
that they stood behind."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .whole_groups import CALL, RESHAPE, Group, inputs_of, is_tensor

WHOLE = "numdrift_whole"
ORIGIN = "numdrift_origin"
PART = "numdrift_part"
OURS = (CALL, ORIGIN, PART, WHOLE)

OpaqueOp = Callable[[Group], tuple[Any, int]]
"""Gives the op that stands for a group that no op of aten can stand for, and its arguments."""

Ranks = Mapping[Node, int]


@dataclass(frozen=True, slots=True)
class Whole:
    """What one node stands for: `members` and `outputs` are nodes of the graph that was folded."""

    members: tuple[Node, ...]
    outputs: tuple[Node, ...]
    ranks: Ranks


def covered_names(node: Node) -> tuple[str, ...]:
    """The names of the nodes that a node of a folded graph stands for, () for any other node."""
    whole: Whole | None = node.meta.get(WHOLE)
    return () if whole is None else tuple(member.name for member in whole.members)


def fold(graph: Graph, groups: Sequence[Group], opaque: OpaqueOp) -> Graph:
    """The graph with one node for each group; a group that others depend on within itself is left as it is."""
    ranks = {node: rank for rank, node in enumerate(graph.nodes)}
    folding = _Folding(ranks, opaque)
    for item in _contracted(graph, groups, ranks):
        if isinstance(item, Group):
            folding.add_group(item)
        else:
            folding.add(item)
    folding.forget_unused(node for group in groups for node in group.views)
    return folding.graph


def _contracted(graph: Graph, groups: Sequence[Group], ranks: Ranks) -> list[Node | Group]:
    """Nodes and groups, each behind what it needs. Leaves out groups until no circle is left."""
    left = list(groups)
    while True:
        of_node = {member: group for group in left for member in group.members}
        items: dict[Node | Group, int] = {of_node.get(node, node): rank for node, rank in ranks.items()}
        needs = {
            item: {of_node.get(one, one) for one in (item.inputs if isinstance(item, Group) else inputs_of(item))}
            for item in items
        }
        ordered = in_order({item: (rank, 0) for item, rank in items.items()}, needs)
        if len(ordered) == len(items):
            return ordered
        users: dict[Any, set[Any]] = {item: set() for item in items}
        for item, needed in needs.items():
            for one in needed:
                users[one].add(item)
        done = {*ordered, *in_order(dict.fromkeys(items, (0, 0)), users)}
        left.remove(next(group for group in left if group not in done))


def in_order(ranks: Mapping[Any, tuple[int, int]], needs: Mapping[Any, Iterable[Any]]) -> list[Any]:
    """The items, each behind those that it needs and otherwise by rank; those in a circle are missing."""
    users: dict[Any, list[Any]] = {item: [] for item in ranks}
    waiting = {item: len(set(needs[item])) for item in ranks}
    for item in ranks:
        for needed in set(needs[item]):
            users[needed].append(item)
    number = {item: place for place, item in enumerate(ranks)}
    ready = [(ranks[item], number[item], item) for item, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        item = heapq.heappop(ready)[-1]
        ordered.append(item)
        for user in users[item]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (ranks[user], number[user], user))
    return ordered


class _Folding:
    """The folded graph while it is written. `ranks` are the places in the graph that is being folded."""

    def __init__(self, ranks: Ranks, opaque: OpaqueOp) -> None:
        self.graph = Graph()
        self._ranks = ranks
        self._opaque = opaque
        self._new: dict[Node, Node] = {}
        self._named = {node.name: node for node in ranks}

    def add(self, node: Node) -> None:
        copy = self.graph.node_copy(node, self._new.__getitem__)
        copy.meta[ORIGIN] = (node, self._ranks[node])
        self._new[node] = copy

    def add_group(self, group: Group) -> None:
        result, arguments = group.result, self._arguments(group)
        if result is not None and arguments is not None:
            node = self._call(group, group.call.overload, *arguments)
            node.meta |= {"val": result.meta["val"], "original_aten": group.call.overload}
            node.meta[WHOLE] = Whole(group.members, (result,), self._ranks)
            self._new[result] = node
            for output in group.outputs:
                if output is not result:
                    self._take(output, RESHAPE, node, list(output.meta["val"].shape))
            return
        op, number = self._opaque(group)
        gradients, saved, sizes = ([self._new[one] for one in some] for some in group.kinds_of_inputs)
        tensors = (gradients, saved) if group.backward else (saved,)
        node = self._call(group, op, (*tensors, number), {"sizes": sizes} if sizes else {})
        node.meta["val"] = [one.meta["val"] for one in group.outputs]
        node.meta[WHOLE] = Whole(group.members, group.outputs, self._ranks)
        for place, output in enumerate(group.outputs):
            self._take(output, operator.getitem, node, place)

    def forget_unused(self, nodes: Iterable[Node]) -> None:
        """Take out views that only the inside of groups needs: unfolding puts them back."""
        for node in sorted(nodes, key=self._ranks.__getitem__, reverse=True):
            if not self._new[node].users:
                self.graph.erase_node(self._new[node])

    def _call(self, group: Group, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        node = self.graph.create_node("call_function", op, args, kwargs, group.name)
        node.meta = _without(group.outputs[-1].meta, "original_aten", "tensor_meta")
        return node

    def _take(self, output: Node, taking: Any, node: Node, argument: Any) -> None:
        part = self.graph.call_function(taking, (node, argument))
        part.meta = _without(output.meta, "original_aten") | {PART: output}
        self._new[output] = part

    def _arguments(self, group: Group) -> tuple[Any, Any] | None:
        """The arguments of the call itself, where the graph still has them and they are all that the group
        takes."""
        arguments = group.call.arguments(self._named)
        if arguments is None:
            return None
        taken: list[Node] = []
        map_arg(arguments, taken.append)
        if not group.takes_only(taken) or any(node not in self._new for node in taken):
            return None
        args, kwargs = map_arg(arguments, self._new.__getitem__)
        return args, kwargs


def _without(meta: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name not in (CALL, *names)}


def unfold(graph: Graph) -> None:
    """Put back what was folded, in the graph itself; what was added since stays, and so do all other nodes."""
    _Unfolding(graph).put_back()


class _Unfolding:
    """A folded graph while its members are put back.

    A key is a node of the graph that was folded, or one added since; `_ranks` are the places in that graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._keys: dict[Node, Node | list[Node]] = {}
        self._places: dict[Node, tuple[int, int]] = {}
        self._now: dict[Node, Node] = {}
        self._stand_ins: list[Node] = []
        self._ranks: Ranks = {}
        last = 0
        for position, node in enumerate(graph.nodes):
            last = self._read(node, last, position)

    def _read(self, node: Node, last: int, position: int) -> int:
        """Note what a node stands for; gives its place in the graph that was folded.

        An added node may have a copy of another's meta.
        """
        whole: Whole | None = node.meta.get(WHOLE)
        if whole is not None and whole.outputs[0] not in self._places:
            self._ranks = whole.ranks
            self._places.update({member: (whole.ranks[member], 0) for member in whole.members})
            self._keys[node] = whole.outputs[0] if is_tensor(node) else list(whole.outputs)
            self._stand_ins.append(node)
            return max(whole.ranks[member] for member in whole.members)
        if PART in node.meta and node.target in (operator.getitem, RESHAPE):
            self._keys[node] = node.meta[PART]
            self._stand_ins.append(node)
            return last
        origin, rank = node.meta.get(ORIGIN, (node, last))
        if origin in self._places:
            origin, rank = node, last
        self._keys[node] = origin
        self._now[origin] = node
        self._places[origin] = (rank, position + 1 if origin is node else 0)
        return int(rank)

    def put_back(self) -> None:
        needs = self._needs()
        ordered = in_order(self._places, needs)
        kept = set(self._now.values())
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            for key in ordered:
                if key not in self._now:
                    self._now[key] = self._graph.node_copy(key, self._now.__getitem__)
        for node in kept:
            node.args, node.kwargs = map_arg((node.args, node.kwargs), self._in_place_of)
        for node in reversed(self._stand_ins):
            self._graph.erase_node(node)
        self._arrange([self._now[key] for key in ordered])

    def _arrange(self, nodes: Sequence[Node]) -> None:
        last: Node | None = None
        for node in nodes:
            following = next(iter(self._graph.nodes)) if last is None else last.next
            if following is not node:
                following.prepend(node)
            for name in OURS:
                node.meta.pop(name, None)
            last = node

    def _needs(self) -> dict[Node, list[Node]]:
        """What each node needs. Adds views that were forgotten."""
        needs: dict[Node, list[Node]] = {}
        pending = list(self._places)
        while pending:
            key = pending.pop()
            if key in needs:
                continue
            self._places.setdefault(key, (self._ranks.get(key, 0), 0))
            now = self._now.get(key)
            needs[key] = inputs_of(key) if now is None else self._behind(inputs_of(now))
            pending += needs[key]
        return needs

    def _behind(self, nodes: Iterable[Node]) -> list[Node]:
        found: list[Node] = []
        for node in nodes:
            key = self._keys[node]
            found += key if isinstance(key, list) else [key]
        return found

    def _in_place_of(self, node: Node) -> Any:
        """What a node that stays takes where it took `node`; the results together where it took several as
        one."""
        key = self._keys[node]
        return [self._now[one] for one in key] if isinstance(key, list) else self._now[key]


def is_folded(graph: Graph) -> bool:
    """Whether any node of the graph stands for a composite call."""
    return any(WHOLE in node.meta for node in graph.nodes)
