"""The nodes of a graph that belong to one composite call: those of its forward, and those of its backward."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from numdrift.harness.torch_private.composite_ops import is_operator
from numdrift.harness.torch_private.operators import returns_view

CALL = "numdrift_composite"
"""Where a node carries the number of the composite call that it was traced in."""


RESHAPE = torch.ops.aten.view.default


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A tensor among the arguments of a call, by the name of its node."""

    name: str


@dataclass(frozen=True, slots=True)
class CompositeCall:
    """One call of a composite op as it was traced.

    `results` are its results by the names of their nodes, `sequence` the numbers of its autograd nodes.
    `args` and `kwargs` are the arguments with `Named` for tensors, None where they cannot be written down.
    """

    number: int
    op: str
    overload: Any
    args: tuple[Any, ...] | None
    kwargs: Mapping[str, Any]
    results: Mapping[str, torch.Tensor]
    sequence: frozenset[int]

    def arguments(self, nodes: Mapping[str, Node | None]) -> tuple[Any, Any] | None:
        """Positional arguments and those by name, with nodes for tensors; None where a node is missing."""
        try:
            return None if self.args is None else (_placed(self.args, nodes), _placed(dict(self.kwargs), nodes))
        except LookupError:
            return None


def _placed(value: Any, nodes: Mapping[str, Node | None]) -> Any:
    if isinstance(value, NamedNode):
        node = nodes[value.name]
        if node is None:
            raise LookupError(value.name)
        return node
    if isinstance(value, dict):
        return {name: _placed(one, nodes) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(one, nodes) for one in value)
    return value


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """The nodes of one call in one graph, its forward or its backward. `views` only look at what is outside
    and are used there, too: they stay outside."""

    call: CompositeCall
    backward: bool
    members: tuple[Node, ...]
    views: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def name(self) -> str:
        return f"{self.call.op}_backward" if self.backward else self.call.op

    @property
    def kinds_of_inputs(self) -> tuple[list[Node], list[Node], list[Node]]:
        """The gradients that come in, other tensors, and sizes."""
        tensors = [node for node in self.inputs if is_tensor(node)]
        gradients = [node for node in tensors if self.backward and _of_backward(node)]
        saved = [node for node in tensors if node not in gradients]
        return gradients, saved, [node for node in self.inputs if not is_tensor(node)]

    @property
    def result(self) -> Node | None:
        """The output that is the call's only result, the other outputs being the same elements in other
        shapes."""
        last = self.outputs[-1]
        expected = next(iter(self.call.results.values()))
        if self.backward or len(self.call.results) > 1 or not _same_kind(last.meta["val"], expected):
            return None
        seen = [last]
        while seen[-1].target is RESHAPE and seen[-1] in self.members:
            seen += inputs_of(seen[-1])[:1]
        others = [node for node in self.outputs if node is not last]
        static = all(type(size) is int for node in others for size in node.meta["val"].shape)
        return last if static and all(node in seen for node in others) else None

    def takes_only(self, nodes: Container[Node]) -> bool:
        """Whether no tensor comes in but these nodes and views of them."""
        for node in filter(is_tensor, self.inputs):
            while node not in nodes and is_view(node):
                node = inputs_of(node)[0]
            if node not in nodes:
                return False
        return True

    @property
    def text(self) -> str:
        """The same for groups that compute the same of inputs of the same names."""
        lines = [f"{node.name} = {node.target}({node.args}, {node.kwargs})" for node in self.members]
        return "\n".join([*lines, str(self.kinds_of_inputs), str(self.outputs)])


def groups_of(graph: Graph, calls: Sequence[CompositeCall]) -> list[Group]:
    """The groups of a graph; calls whose nodes are gone have none.

    What only a call's backward needs of its forward, where the backward computes it again, belongs to its
    backward."""
    by_sequence = {number: call for call in calls for number in call.sequence}
    forward: dict[int, list[Node]] = {}
    backward: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not _gives_tensors(node):
            continue
        if CALL in node.meta:
            forward.setdefault(node.meta[CALL], []).append(node)
        elif _of_backward(node) and node.meta.get("seq_nr") in by_sequence:
            backward.setdefault(by_sequence[node.meta["seq_nr"]].number, []).append(node)
    for number in forward.keys() & backward.keys():
        forward[number], backward[number] = _shared_out(forward[number], backward[number])
    place = {node: number for number, node in enumerate(graph.nodes)}
    made = [node for node in place if "seq_nr" not in node.meta and CALL not in node.meta and is_tensor(node)]
    found = []
    for backwards, some in ((False, forward), (True, backward)):
        for number, nodes in some.items():
            members = sorted([*nodes, *_between(nodes, made)], key=place.__getitem__)
            found.append(_group(calls[number], backwards, members))
    return [group for group in found if group is not None]


def _between(members: Sequence[Node], made: Sequence[Node]) -> list[Node]:
    """Of the nodes that Inductor has `made` in place of others, those that only lead from members to
    members."""
    behind = set(members)
    for node in made:
        if any(one in behind for one in inputs_of(node)):
            behind.add(node)
    inside = set(members)
    for node in reversed(made):
        if node in behind and node.users and all(user in inside for user in node.users):
            inside.add(node)
    return [node for node in made if node in inside]


def _shared_out(forward: Sequence[Node], backward: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Both with those of the forward that nothing but the backward uses moved to it."""
    taken = set(backward)
    for node in reversed(forward):
        if node.users and all(user in taken for user in node.users):
            taken.add(node)
    return [node for node in forward if node not in taken], [
        *(node for node in forward if node in taken),
        *backward,
    ]


def _group(call: CompositeCall, backward: bool, nodes: Iterable[Node]) -> Group | None:
    """None for one that no node can stand for: it computes nothing, or takes or gives something else than
    tensors."""
    members = dict.fromkeys(nodes)
    views = _views_of_the_outside(members, () if backward else call.results)
    for view in views:
        del members[view]
    inputs = tuple(dict.fromkeys(one for node in members for one in inputs_of(node) if one not in members))
    outputs = tuple(node for node in members if any(user not in members for user in node.users))
    computing = [node for node in members if not is_view(node)]
    known = all(is_tensor(node) for node in outputs) and all(is_tensor(node) or _is_size(node) for node in inputs)
    if not outputs or not computing or not known:
        return None
    return Group(call, backward, tuple(members), tuple(views), inputs, outputs)


def _views_of_the_outside(members: Mapping[Node, None], results: Container[str]) -> list[Node]:
    """Views of what comes from outside that are used outside, too, and the views that those are made of."""
    outer: list[Node] = []
    for node in members:
        of_outside = all(one not in members or one in outer for one in inputs_of(node))
        if is_view(node) and node.name not in results and of_outside:
            outer.append(node)
    used: list[Node] = []
    for node in reversed(outer):
        if any(user not in members or user in used for user in node.users):
            used.append(node)
    return used


def inputs_of(node: Node) -> list[Node]:
    """The nodes that a node takes."""
    return node.all_input_nodes


def is_tensor(node: Node) -> bool:
    """Whether a node gives one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def _same_kind(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (int, torch.SymInt)) and not isinstance(node.meta.get("val"), bool)


def _gives_tensors(node: Node) -> bool:
    value = node.meta.get("val")
    return is_tensor(node) or (isinstance(value, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in value))


def is_view(node: Node) -> bool:
    """Whether a node gives another view of what it takes."""
    return is_operator(node.target) and returns_view(node.target)


def _of_backward(node: Node) -> bool:
    """Not so what the backward computes again of the forward."""
    if node.op == "placeholder":
        return node.name.startswith("tangents")
    return str(node.meta.get("partitioner_tag")).endswith("_backward")
