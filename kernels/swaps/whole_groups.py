"""The nodes of a graph that belong to one composite call: those of its forward, and those of its backward."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from numdrift.harness.torch_private.compiler.composite_ops import is_operator
from numdrift.harness.torch_private.operators import returns_view

CALL = "numdrift_composite"
"""The key in a node's meta for the number of the composite call in which the node was traced."""


RESHAPE = torch.ops.aten.view.default


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A tensor among the arguments of a call, represented by its node's name."""

    name: str


@dataclass(frozen=True, slots=True)
class CompositeCall:
    """One traced call of a composite op.

    args, kwargs: the arguments, with a `NamedNode` in place of each tensor; `args` is None if this is impossible
    results: the call's results by node name
    sequence: the numbers of the call's autograd nodes
    """

    number: int
    op: str
    overload: Any
    args: tuple[Any, ...] | None
    kwargs: Mapping[str, Any]
    results: Mapping[str, torch.Tensor]
    sequence: frozenset[int]

    def arguments(self, nodes: Mapping[str, Node]) -> tuple[Any, Any] | None:
        """Return positional and keyword arguments with nodes in place of tensors, or None if a node is missing."""
        try:
            return None if self.args is None else (_placed(self.args, nodes), _placed(dict(self.kwargs), nodes))
        except KeyError:
            return None


def _placed(value: Any, nodes: Mapping[str, Node]) -> Any:
    if isinstance(value, NamedNode):
        return nodes[value.name]
    if isinstance(value, dict):
        return {name: _placed(element, nodes) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(element, nodes) for element in value)
    return value


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """The nodes of one call's forward, or of its backward, in one graph.

    `views` are views of tensors from outside the group. Nodes outside use these views too, so the views stay outside.
    """

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
        """The incoming gradients, other tensors, and sizes."""
        tensors = [node for node in self.inputs if is_tensor(node)]
        gradients = [node for node in tensors if self.backward and _of_backward(node)]
        saved = [node for node in tensors if node not in gradients]
        return gradients, saved, [node for node in self.inputs if not is_tensor(node)]

    @property
    def result(self) -> Node | None:
        """Return the output that is the call's only result, or None if there is no such output.

        Further outputs may only be the elements of this result in different shapes.
        """
        if self.backward or len(self.call.results) > 1:
            return None
        # Shapes are compared only here, for a forward: sizes may be symbols, and comparing a gradient's size with the
        # result's would add a guard.
        last = self.outputs[-1]
        got, expected = last.meta["val"], next(iter(self.call.results.values()))
        if (got.shape, got.stride(), got.dtype) != (expected.shape, expected.stride(), expected.dtype):
            return None
        seen = [last]
        while seen[-1].target is RESHAPE and seen[-1] in self.members:
            seen += seen[-1].all_input_nodes[:1]
        others = [node for node in self.outputs if node is not last]
        static = all(type(size) is int for node in others for size in node.meta["val"].shape)
        return last if static and all(node in seen for node in others) else None

    def takes_only(self, nodes: Container[Node]) -> bool:
        """Check whether the only input tensors are these nodes and views of them."""
        for node in filter(is_tensor, self.inputs):
            while node not in nodes and is_view(node):
                node = node.all_input_nodes[0]
            if node not in nodes:
                return False
        return True

    @property
    def text(self) -> str:
        """Return a text that is equal for groups with the same computation on inputs of the same names."""
        lines = [f"{node.name} = {node.target}({node.args}, {node.kwargs})" for node in self.members]
        return "\n".join([*lines, str(self.kinds_of_inputs), str(self.outputs)])


def groups_of(graph: Graph, calls: Sequence[CompositeCall]) -> list[Group]:
    """Return the groups of a graph; calls without remaining nodes have none."""
    by_sequence = {number: call for call in calls for number in call.sequence}
    forward: dict[int, list[Node]] = {}
    backward: dict[int, list[Node]] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        tensors = value if isinstance(value, (list, tuple)) else (value,)
        if node.op != "call_function" or not any(isinstance(tensor, torch.Tensor) for tensor in tensors):
            continue
        if CALL in node.meta:
            forward.setdefault(node.meta[CALL], []).append(node)
        elif _of_backward(node) and node.meta.get("seq_nr") in by_sequence:
            backward.setdefault(by_sequence[node.meta["seq_nr"]].number, []).append(node)

    # Forward nodes that only a call's backward uses, because it recomputes them, belong to the backward.
    for number in forward.keys() & backward.keys():
        nodes_of_backward = set(backward[number])
        for node in reversed(forward[number]):
            if node.users and all(user in nodes_of_backward for user in node.users):
                nodes_of_backward.add(node)
        recomputed = [node for node in forward[number] if node in nodes_of_backward]
        forward[number] = [node for node in forward[number] if node not in nodes_of_backward]
        backward[number] = [*recomputed, *backward[number]]

    # Nodes that Inductor created name no call; those on a path between members belong to the members' call.
    place = {node: number for number, node in enumerate(graph.nodes)}
    made = [node for node in place if "seq_nr" not in node.meta and CALL not in node.meta and is_tensor(node)]
    groups = []
    for backwards, nodes_by_call in ((False, forward), (True, backward)):
        for number, nodes in nodes_by_call.items():
            behind, inside = set(nodes), set(nodes)
            for node in made:
                if any(source in behind for source in node.all_input_nodes):
                    behind.add(node)
            for node in reversed(made):
                if node in behind and node.users and all(user in inside for user in node.users):
                    inside.add(node)
            members = sorted([*nodes, *(node for node in made if node in inside)], key=place.__getitem__)
            groups.append(_group(calls[number], backwards, members))
    return [group for group in groups if group is not None]


def _group(call: CompositeCall, backward: bool, nodes: Iterable[Node]) -> Group | None:
    """Return a group, or None if no node can represent it, because it computes nothing, or because it takes or returns
    values that are neither tensors nor sizes."""
    members = dict.fromkeys(nodes)
    # A view of a tensor from outside stays outside if a node outside uses it too. So do the views that it comes from.
    results: Container[str] = () if backward else call.results
    outer: list[Node] = []
    for node in members:
        of_outside = all(source not in members or source in outer for source in node.all_input_nodes)
        if is_view(node) and node.name not in results and of_outside:
            outer.append(node)
    views: list[Node] = []
    for node in reversed(outer):
        if any(user not in members or user in views for user in node.users):
            views.append(node)
    for view in views:
        del members[view]

    inputs = tuple(
        dict.fromkeys(source for node in members for source in node.all_input_nodes if source not in members)
    )
    outputs = tuple(node for node in members if any(user not in members for user in node.users))
    sizes = [node.meta.get("val") for node in inputs if not is_tensor(node)]
    # in Python a bool is an int, but it is not a size
    are_sizes = all(isinstance(size, (int, torch.SymInt)) and not isinstance(size, bool) for size in sizes)
    computes = any(not is_view(node) for node in members)
    if not outputs or not computes or not are_sizes or not all(map(is_tensor, outputs)):
        return None
    return Group(call, backward, tuple(members), tuple(views), inputs, outputs)


def is_tensor(node: Node) -> bool:
    """Check whether a node returns one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def is_view(node: Node) -> bool:
    """Check whether a node returns a view of its input."""
    return is_operator(node.target) and returns_view(node.target)


def _of_backward(node: Node) -> bool:
    """Check whether a node belongs to the backward; forward nodes that the backward recomputes do not."""
    if node.op == "placeholder":
        return node.name.startswith("tangents")
    return str(node.meta.get("partitioner_tag")).endswith("_backward")
