"""One node in place of the many that a composite op became in a graph, and the many put back as they were.

`fold` takes a graph as the compiler has it and shows each composite call as one node; `unfold` gives exactly
the graph that was folded. Nodes that somebody adds to a folded graph stay when it is unfolded, behind those
that they stood behind.

    w_t = t(w); y = tanh(x); mm = mm(y, w_t); out = sin(mm)     as it was traced, t and mm by linear(y, w)
    y = tanh(x); linear = linear(y, w); out = sin(linear)       folded
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .whole_groups import CALL, RESHAPE, Group, is_tensor

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


def fold(graph: Graph, groups: Sequence[Group], opaque: OpaqueOp) -> Graph:
    """The graph with one node for each group; a group that others depend on within itself is left as it is."""
    ranks = {node: rank for rank, node in enumerate(graph.nodes)}
    named = {node.name: node for node in ranks}
    folded, new = Graph(), dict[Node, Node]()

    def stand_for(group: Group, op: Any, args: tuple[Any, ...], kwargs: Any, outputs: tuple[Node, ...]) -> Node:
        node = folded.create_node("call_function", op, args, kwargs, group.name)
        node.meta = _without(group.outputs[-1].meta, "original_aten", "tensor_meta")
        node.meta[WHOLE] = Whole(group.members, outputs, ranks)
        return node

    def take(output: Node, taking: Any, node: Node, argument: Any) -> None:
        part = folded.call_function(taking, (node, argument))
        part.meta = _without(output.meta, "original_aten") | {PART: output}
        new[output] = part

    for item in _contracted(graph, groups, ranks):
        if isinstance(item, Node):
            new[item] = folded.node_copy(item, new.__getitem__)
            new[item].meta[ORIGIN] = (item, ranks[item])
            continue
        # The op itself stands for the group where the graph has the call's arguments, and they are all it takes.
        result, arguments = item.result, item.call.arguments(named)
        taken: list[Node] = []
        map_arg(arguments, taken.append)
        if result is not None and arguments is not None and item.takes_only(taken) and new.keys() >= set(taken):
            node = stand_for(item, item.call.overload, *map_arg(arguments, new.__getitem__), (result,))
            node.meta |= {"val": result.meta["val"], "original_aten": item.call.overload}
            new[result] = node
            for output in item.outputs:
                if output is not result:
                    take(output, RESHAPE, node, list(output.meta["val"].shape))
            continue
        op, number = opaque(item)
        gradients, saved, sizes = ([new[one] for one in some] for some in item.kinds_of_inputs)
        tensors = (gradients, saved) if item.backward else (saved,)
        node = stand_for(item, op, (*tensors, number), {"sizes": sizes} if sizes else {}, item.outputs)
        node.meta["val"] = [one.meta["val"] for one in item.outputs]
        for place, output in enumerate(item.outputs):
            take(output, operator.getitem, node, place)

    # Views that only the inside of groups needs are taken out, the last one first: unfolding puts them back.
    for view in sorted((node for group in groups for node in group.views), key=ranks.__getitem__, reverse=True):
        if not new[view].users:
            folded.erase_node(new[view])
    return folded


def _without(meta: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name not in (CALL, *names)}


def _contracted(graph: Graph, groups: Sequence[Group], ranks: Ranks) -> list[Node | Group]:
    """Nodes and groups, each behind what it needs. Leaves out groups until no circle is left."""
    left = list(groups)
    while True:
        of_node = {member: group for group in left for member in group.members}
        items: dict[Node | Group, int] = {of_node.get(node, node): rank for node, rank in ranks.items()}
        needs = {
            item: {of_node.get(one, one) for one in (item.inputs if isinstance(item, Group) else item.all_input_nodes)}
            for item in items
        }
        ordered = in_order({item: (rank, 0) for item, rank in items.items()}, needs)
        if len(ordered) == len(items):
            return ordered
        # What neither comes before a circle nor behind one is in it: there a group has to go.
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
    # the number decides between equal ranks, so that items are never compared
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


def is_folded(graph: Graph) -> bool:
    """Whether any node of the graph stands for a composite call."""
    return any(WHOLE in node.meta for node in graph.nodes)


@dataclass(slots=True)
class _Folded:
    """What the nodes of a folded graph stand for.

    A key is a node of the graph that was folded, or one added since. `places` are where keys belong, `now` the
    nodes that are there already, `stand_ins` those that go; `ranks` are the places in the graph that was folded.
    """

    keys: dict[Node, Node | list[Node]] = field(default_factory=dict)
    places: dict[Node, tuple[int, int]] = field(default_factory=dict)
    now: dict[Node, Node] = field(default_factory=dict)
    stand_ins: list[Node] = field(default_factory=list)
    ranks: Ranks = field(default_factory=dict)

    @classmethod
    def read(cls, graph: Graph) -> _Folded:
        found = cls()
        last = 0  # the place in the graph that was folded of the node before
        for position, node in enumerate(graph.nodes):
            whole: Whole | None = node.meta.get(WHOLE)
            # An added node may have a copy of another's meta: the first that says so is the one.
            if whole is not None and whole.outputs[0] not in found.places:
                found.ranks = whole.ranks
                found.places.update({member: (whole.ranks[member], 0) for member in whole.members})
                found.keys[node] = whole.outputs[0] if is_tensor(node) else list(whole.outputs)
                found.stand_ins.append(node)
                last = max(whole.ranks[member] for member in whole.members)
                continue
            if PART in node.meta and node.target in (operator.getitem, RESHAPE):
                found.keys[node] = node.meta[PART]
                found.stand_ins.append(node)
                continue
            origin, rank = node.meta.get(ORIGIN, (node, last))
            if origin in found.places:
                origin, rank = node, last
            found.keys[node] = origin
            found.now[origin] = node
            found.places[origin] = (rank, position + 1 if origin is node else 0)
            last = rank
        return found


def unfold(graph: Graph) -> None:
    """Put back what was folded, in the graph itself; what was added since stays, and so do all other nodes."""
    found = _Folded.read(graph)
    keys, places, now = found.keys, found.places, found.now

    # What each node needs; views that were forgotten come in again, because something needs them.
    needs: dict[Node, list[Node]] = {}
    pending = list(places)
    while pending:
        key = pending.pop()
        if key in needs:
            continue
        places.setdefault(key, (found.ranks.get(key, 0), 0))
        if key in now:
            behind = [keys[node] for node in now[key].all_input_nodes]
            needs[key] = [one for some in behind for one in (some if isinstance(some, list) else [some])]
        else:
            needs[key] = key.all_input_nodes
        pending += needs[key]
    ordered = in_order(places, needs)

    kept = set(now.values())
    with graph.inserting_before(next(iter(graph.nodes))):
        for key in ordered:
            if key not in now:
                now[key] = graph.node_copy(key, now.__getitem__)

    def in_place_of(node: Node) -> Any:
        key = keys[node]  # the results together where one node stood for several
        return [now[one] for one in key] if isinstance(key, list) else now[key]

    for node in kept:
        node.args, node.kwargs = map_arg((node.args, node.kwargs), in_place_of)
    for node in reversed(found.stand_ins):
        graph.erase_node(node)

    # Every node to its place, and without the marks that folding has left.
    last: Node | None = None
    for node in (now[key] for key in ordered):
        following = next(iter(graph.nodes)) if last is None else last.next
        if following is not node:
            following.prepend(node)
        for name in OURS:
            node.meta.pop(name, None)
        last = node
