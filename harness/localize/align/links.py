"""Links: pairs of values, one of each side, that correspond to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ...tape.tape import View
from .storage_flow import FlowNode, FlowValue, Side, Use, is_contiguous


@dataclass(frozen=True, slots=True)
class Link:
    """The link from a value of this side to one of the other side.

    own_view, far_view: the views of this side's and of the other side's value through which the values correspond.
    value: the other side's value.
    """

    own_view: View
    far_view: View
    value: FlowValue


@dataclass(slots=True)
class Links:
    """The links of each side.

    The links of the two sides need not be inverses: the result of an extra op is linked to the counterpart of the op's
    input.
    `again` maps each node of a side that repeats the computation of an earlier node to the earlier node.
    """

    of: dict[Side, dict[FlowValue, Link]] = field(default_factory=lambda: {"a": {}, "b": {}})
    again: dict[Side, dict[int, int]] = field(default_factory=lambda: {"a": {}, "b": {}})

    def connect(self, a: Use, b: Use) -> None:
        """Link each value to the other, unless it already has a link. One side may have folded dimensions."""
        if a.view.size != b.view.size:
            if not are_folded(a.view, b.view):
                return
            a = Use(replace(a.view, size=b.view.size, stride=b.view.stride), a.value)
        self.of["a"].setdefault(a.value, Link(a.view, b.view, b.value))
        self.of["b"].setdefault(b.value, Link(b.view, a.view, a.value))

    def correct(self, a: Use, b: Use) -> None:
        """Replace the links of these values with links to each other."""
        self.of["a"][a.value] = Link(a.view, b.view, b.value)
        self.of["b"][b.value] = Link(b.view, a.view, a.value)

    def has_either(self, a: Use, b: Use) -> bool:
        """Check whether one of these values has a link."""
        return a.value in self.of["a"] or b.value in self.of["b"]

    def are_linked(self, a: FlowValue, b: FlowValue) -> bool:
        """Check whether one of these values is linked to the other."""
        link_a, link_b = self.of["a"].get(a), self.of["b"].get(b)
        return (link_a is not None and link_a.value == b) or (link_b is not None and link_b.value == a)


def are_folded(view_a: View, view_b: View) -> bool:
    """Check whether two views show the same elements in the same order, with some dimensions of one folded in the
    other: [4, 16, 32] and [64, 32], but not [64, 32] and [32, 64]."""
    if not all(is_contiguous(view.size, view.stride) for view in (view_a, view_b)):
        return False
    sizes_a, sizes_b = ({math.prod(view.size[dim:]) for dim in range(len(view.size) + 1)} for view in (view_a, view_b))
    return max(sizes_a) == max(sizes_b) and (sizes_a <= sizes_b or sizes_b <= sizes_a)


def is_turned_product(node_a: FlowNode, node_b: FlowNode, links: Links) -> bool:
    """Check whether two products are transposes of each other, (B'A')' for AB.

    Autograd computes the transpose for a weight that is laid out column by column. One factor's link is enough, because
    the other factor may be the result of an op that only one side executes. Square factors have no telling sizes.
    """
    if not node_a.call.name == node_b.call.name == "mm" or len(node_a.reads) != 2 or len(node_b.reads) != 2:
        return False
    (a, b), (c, d) = node_a.reads, node_b.reads
    crossed = links.are_linked(a.value, d.value) or links.are_linked(b.value, c.value)
    straight = links.are_linked(a.value, c.value) or links.are_linked(b.value, d.value)
    return (
        crossed
        and not straight
        and all(straight_use.view.size == turned_use.view.size[::-1] for straight_use, turned_use in ((a, d), (b, c)))
    )


def transposed(use: Use) -> Use:
    """Return a matrix with its dimensions exchanged."""
    view = use.view
    return Use(replace(view, size=view.size[::-1], stride=view.stride[::-1]), use.value)
