"""Replace the nodes of a composite op in a graph with one node, and restore them.

`fold` returns a compiler's graph with one node for each composite call; `unfold` restores exactly the folded graph.
Nodes that were added to a folded graph remain when it is unfolded, and still follow the same nodes.

    w_t = t(w); y = tanh(x); mm = mm(y, w_t); out = sin(mm)     as traced; linear(y, w) made t and mm
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
"""Returns the op that represents a group if no aten op can, and the number of the group, which the op takes."""

Ranks = Mapping[Node, int]


@dataclass(frozen=True, slots=True)
class Whole:
    """The nodes that one node represents: `members` and `outputs` are nodes of the graph that was folded."""

    members: tuple[Node, ...]
    outputs: tuple[Node, ...]
    ranks: Ranks


def fold(graph: Graph, groups: Sequence[Group], opaque: OpaqueOp) -> Graph:
    """Return the graph with one node for each group; a group that would create a cycle is not folded."""
    ranks = {node: rank for rank, node in enumerate(graph.nodes)}
    named = {node.name: node for node in ranks}
    folded, new = Graph(), dict[Node, Node]()

    def represent(group: Group, op: Any, args: tuple[Any, ...], kwargs: Any, outputs: tuple[Node, ...]) -> Node:
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
        # The op itself represents the group if the graph has the call's arguments, and the group reads only these.
        result, arguments = item.result, item.call.arguments(named)
        argument_nodes: list[Node] = []
        map_arg(arguments, argument_nodes.append)
        if (
            result is not None
            and arguments is not None
            and item.takes_only(argument_nodes)
            and new.keys() >= set(argument_nodes)
        ):
            node = represent(item, item.call.overload, *map_arg(arguments, new.__getitem__), (result,))
            node.meta |= {"val": result.meta["val"], "original_aten": item.call.overload}
            new[result] = node
            for output in item.outputs:
                if output is not result:
                    take(output, RESHAPE, node, list(output.meta["val"].shape))
            continue
        op, number = opaque(item)
        gradients, saved, sizes = (
            [new[input_node] for input_node in nodes_of_kind] for nodes_of_kind in item.kinds_of_inputs
        )
        tensors = (gradients, saved) if item.backward else (saved,)
        node = represent(item, op, (*tensors, number), {"sizes": sizes} if sizes else {}, item.outputs)
        node.meta["val"] = [output.meta["val"] for output in item.outputs]
        for place, output in enumerate(item.outputs):
            take(output, operator.getitem, node, place)

    # Views that only members of groups use are removed, last first; unfolding restores them.
    for view in sorted((node for group in groups for node in group.views), key=ranks.__getitem__, reverse=True):
        if not new[view].users:
            folded.erase_node(new[view])
    return folded


def _without(meta: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name not in (CALL, *names)}


def _contracted(graph: Graph, groups: Sequence[Group], ranks: Ranks) -> list[Node | Group]:
    """Return nodes and groups in topological order, leaving out groups until no cycle is left."""
    remaining = list(groups)
    while True:
        of_node = {member: group for group in remaining for member in group.members}
        items: dict[Node | Group, int] = {of_node.get(node, node): rank for node, rank in ranks.items()}
        needs = {
            item: {
                of_node.get(input_node, input_node)
                for input_node in (item.inputs if isinstance(item, Group) else item.all_input_nodes)
            }
            for item in items
        }
        ordered = in_order({item: (rank, 0) for item, rank in items.items()}, needs)
        if len(ordered) == len(items):
            return ordered
        # Any item that comes neither before nor after all cycles is in a cycle or between two cycles; leave out one
        # such group.
        users: dict[Any, set[Any]] = {item: set() for item in items}
        for item, needed in needs.items():
            for needed_item in needed:
                users[needed_item].add(item)
        done = {*ordered, *in_order(dict.fromkeys(items, (0, 0)), users)}
        remaining.remove(next(group for group in remaining if group not in done))


def in_order(ranks: Mapping[Any, tuple[int, int]], needs: Mapping[Any, Iterable[Any]]) -> list[Any]:
    """Order items by rank, each after the items that it needs; items in a cycle are left out."""
    users: dict[Any, list[Any]] = {item: [] for item in ranks}
    waiting = {item: len(set(needs[item])) for item in ranks}
    for item in ranks:
        for needed in set(needs[item]):
            users[needed].append(item)
    # the number breaks ties between equal ranks, so that items are never compared
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
    """Check whether any node of the graph represents a composite call."""
    return any(WHOLE in node.meta for node in graph.nodes)


@dataclass(slots=True)
class _Folded:
    """The nodes that the nodes of a folded graph represent.

    keys: for each node, the node of the original graph that it represents, a list of such nodes if it represents
        several results, or the node itself if it was added to the folded graph
    places: the order of the keys: the rank in the original graph, and then the position of an added node
    now: the nodes of the folded graph that remain, by key
    stand_ins: the nodes of the folded graph that are removed
    ranks: the ranks of the nodes in the original graph
    """

    keys: dict[Node, Node | list[Node]] = field(default_factory=dict)
    places: dict[Node, tuple[int, int]] = field(default_factory=dict)
    now: dict[Node, Node] = field(default_factory=dict)
    stand_ins: list[Node] = field(default_factory=list)
    ranks: Ranks = field(default_factory=dict)

    @classmethod
    def read(cls, graph: Graph) -> _Folded:
        folded = cls()
        last = 0  # the previous node's place in the original graph
        for position, node in enumerate(graph.nodes):
            whole: Whole | None = node.meta.get(WHOLE)
            # An added node may have a copy of another node's meta; only the first node with this meta counts.
            if whole is not None and whole.outputs[0] not in folded.places:
                folded.ranks = whole.ranks
                folded.places.update({member: (whole.ranks[member], 0) for member in whole.members})
                folded.keys[node] = whole.outputs[0] if is_tensor(node) else list(whole.outputs)
                folded.stand_ins.append(node)
                last = max(whole.ranks[member] for member in whole.members)
                continue
            if PART in node.meta and node.target in (operator.getitem, RESHAPE):
                folded.keys[node] = node.meta[PART]
                folded.stand_ins.append(node)
                continue
            origin, rank = node.meta.get(ORIGIN, (node, last))
            if origin in folded.places:
                origin, rank = node, last
            folded.keys[node] = origin
            folded.now[origin] = node
            folded.places[origin] = (rank, position + 1 if origin is node else 0)
            last = rank
        return folded


def unfold(graph: Graph) -> None:
    """Restore the folded nodes in place; all other nodes stay, including those added after the folding."""
    folded = _Folded.read(graph)
    keys, places, now = folded.keys, folded.places, folded.now

    # The nodes that each node needs; a removed view is added again if another node needs it.
    needs: dict[Node, list[Node]] = {}
    pending = list(places)
    while pending:
        key = pending.pop()
        if key in needs:
            continue
        places.setdefault(key, (folded.ranks.get(key, 0), 0))
        if key in now:
            behind = [keys[node] for node in now[key].all_input_nodes]
            needs[key] = [needed for entry in behind for needed in (entry if isinstance(entry, list) else [entry])]
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
        key = keys[node]  # a list where one node represented several results
        return [now[result] for result in key] if isinstance(key, list) else now[key]

    for node in kept:
        node.args, node.kwargs = map_arg((node.args, node.kwargs), in_place_of)
    for node in reversed(folded.stand_ins):
        graph.erase_node(node)

    # Move every node to its place, and remove the marks of folding.
    last: Node | None = None
    for node in (now[key] for key in ordered):
        following = next(iter(graph.nodes)) if last is None else last.next
        if following is not node:
            following.prepend(node)
        for name in OURS:
            node.meta.pop(name, None)
        last = node
