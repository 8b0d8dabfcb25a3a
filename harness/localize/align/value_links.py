"""Links between the corresponding values of two tapes, and the corresponding arguments of two paired calls."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...tape.tape import View, leaves
from ...torch_private.operators import view_behind
from .blocks import Block
from .repeats import again_within
from .storage_flow import (
    SIDES,
    FlowNode,
    FlowValue,
    Side,
    StorageFlow,
    Use,
    is_contiguous,
    layout_of,
    other,
    readers_of,
)


@dataclass(frozen=True, slots=True)
class Link:
    """The link from a value of this side to one of the other side.

    mine, theirs: the views through which both values correspond.
    value: the other side's value.
    """

    mine: View
    theirs: View
    value: FlowValue


@dataclass(slots=True)
class Links:
    """The links of each side.

    The two sides' links need not be inverse: the result of an extra op is linked to the counterpart of the op's input.
    `again` are each side's nodes that repeat an earlier node of the same block, each with that node.
    """

    of: dict[Side, dict[FlowValue, Link]] = field(default_factory=lambda: {"a": {}, "b": {}})
    again: dict[Side, dict[int, int]] = field(default_factory=lambda: {"a": {}, "b": {}})

    def connect(self, a: Use, b: Use) -> None:
        """Link each value to the other unless it has a link; one side may have folded dimensions."""
        if a.view.size != b.view.size:
            if not are_folded(a.view, b.view):
                return
            a = Use(replace(a.view, size=b.view.size, stride=b.view.stride), a.value)
        self.of["a"].setdefault(a.value, Link(a.view, b.view, b.value))
        self.of["b"].setdefault(b.value, Link(b.view, a.view, a.value))

    def are_linked(self, a: FlowValue, b: FlowValue) -> bool:
        link_a, link_b = self.of["a"].get(a), self.of["b"].get(b)
        return (link_a is not None and link_a.value == b) or (link_b is not None and link_b.value == a)


def linked(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block], *, own_batch: bool = True) -> Links:
    """Link values with equal names on both tapes, those that pairs make, and those that pairs read but no pair makes.

    With `own_batch` the batches of both scripts are linked even if the reference's batch replaced the other one. The
    first link of a value stays, so the surest links come first.
    """
    links = Links()
    flows: tuple[tuple[Side, StorageFlow], ...] = (("a", a), ("b", b))
    names = [name for name in a.watched if name in b.watched]
    # The initial values of the step, by their names at its end
    for name in names:
        if name.startswith(("parameter ", "buffer ", "state ")):
            start_a, start_b = (flow.tape.starts.get(name, flow.watched[name].view) for flow in (a, b))
            if start_a.slot in a.tape.inputs and start_b.slot in b.tape.inputs:
                links.connect(Use(start_a, FlowValue(start_a.slot, 0)), Use(start_b, FlowValue(start_b.slot, 0)))
    copies = {side: copied_views(flow) for side, flow in flows}
    # A name at the end may belong to a copy of a view: it identifies the copy, and thereby the source
    copied = {side: {copy.value for _, copy, _ in copies[side]} for side in SIDES}
    for name in names:
        if a.watched[name].value in copied["a"] or b.watched[name].value in copied["b"]:
            links.connect(a.watched[name], b.watched[name])
    for side in SIDES:
        _link_copies(links, side, copies[side])
    batches = [(a.given[name], b.given[name]) for name in a.given if name in b.given]
    # Link the batches now: a replaced batch has the reference's content, by which it would be linked below.
    for use_a, use_b in batches if own_batch else ():
        if use_a.value not in a.makers and use_b.value not in b.makers:
            links.connect(use_a, use_b)
    links.again = {
        side: again_within(flow, [block.of(side) for block in blocks if block.paired]) for side, flow in flows
    }
    once = [
        [[node for node in block.of(side) if node not in links.again[side]] for side in SIDES]
        for block in blocks
        if block.paired
    ]
    pairs = [
        (a.nodes[nodes_a[0]], b.nodes[nodes_b[0]]) for nodes_a, nodes_b in once if len(nodes_a) == len(nodes_b) == 1
    ]
    # The inputs of both sides: by equal contents if possible, and only later by their places among the arguments
    for node_a, node_b in pairs:
        for use_a, use_b in common_reads(node_a, node_b):
            bytes_a = a.tape.inputs.get(use_a.value.slot) if use_a.value.version == 0 else None
            bytes_b = b.tape.inputs.get(use_b.value.slot) if use_b.value.version == 0 else None
            is_linked = use_a.value in links.of["a"] or use_b.value in links.of["b"]
            if bytes_a is None or bytes_b is None or is_linked or layout_of(use_a.view) != layout_of(use_b.view):
                continue
            if bytes_a.numel() == bytes_b.numel() and bool((bytes_a == bytes_b).all()):
                links.connect(use_a, use_b)
    expanded = {copy.value: source for source, copy, _ in copies["b"] if copy.view.size != source.view.size}
    unpaired: dict[Side, set[int]] = {
        side: {node for block in blocks if not block.is_pair for node in block.of(side)} for side in SIDES
    }
    readers = {side: readers_of(flow) for side, flow in flows}
    for side, flow in flows:
        for watched in flow.watched.values():  # the end of the step reads it
            readers[side].setdefault(watched.value, []).append(len(flow.nodes))
    read_alike: dict[FlowValue, set[FlowValue]] = {}
    for read_a, read_b in (common for pair in pairs for common in common_reads(*pair)):
        read_alike.setdefault(read_a.value, set()).add(read_b.value)
    for numbers_a, numbers_b in once:
        if not len(numbers_a) == len(numbers_b) == 1:
            _link_ways(links, flows, (numbers_a, numbers_b), readers, read_alike)
            continue
        node_a, node_b = a.nodes[numbers_a[0]], b.nodes[numbers_b[0]]
        for use_a, use_b in common_reads(node_a, node_b):
            makers = a.makers.get(use_a.value), b.makers.get(use_b.value)
            loose = makers[0] in unpaired["a"] or makers[1] in unpaired["b"]
            is_linked = use_a.value in links.of["a"] or use_b.value in links.of["b"]
            if loose or (makers == (None, None) and not is_linked):
                use_a, use_b = _before_expansion(use_a, use_b, expanded)
                # a copy of a view is linked through its source
                if use_a.value not in copied["a"] and use_b.value not in copied["b"]:
                    links.connect(use_a, use_b)
        results: list[tuple[Sequence[Use | None], Sequence[Use | None]]]
        results = [(node_a.makes, node_b.makes), (node_a.writes, node_b.writes)]
        if bool(node_a.writes) != bool(node_b.writes):  # in place on one side only
            results.append((node_a.made, node_b.made))
        turned = is_turned_product(node_a, node_b, links)
        for made_a, made_b in results:
            for use, other_use in zip(made_a, made_b, strict=False):
                if use is None or other_use is None:
                    continue
                # Integers of different dtypes differ in meaning: a compiler has offsets within a window, not indices.
                dtypes = {result.view.dtype for result in (use, other_use)}
                if len(dtypes) == 1 or any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
                    links.connect(use, transposed(other_use) if turned else other_use)
    for use_a, use_b in batches:
        links.connect(use_a, use_b)
    for name in names:
        links.connect(a.watched[name], b.watched[name])
    # Link a repeated computation to the counterpart of the first one
    for side, flow in flows:
        own_links = links.of[side]
        for number, first in links.again[side].items():
            for repeated, earlier in zip(flow.nodes[number].makes, flow.nodes[first].makes, strict=False):
                link = None if earlier is None else own_links.get(earlier.value)
                if repeated is not None and link is not None and repeated.view.size == link.mine.size:
                    own_links.setdefault(repeated.value, Link(repeated.view, link.theirs, link.value))
    for side in SIDES:
        _link_copies(links, side, copies[side])
    return links


def are_folded(view_a: View, view_b: View) -> bool:
    """Check whether two views show the same elements in the same order, with some dimensions of one folded in the
    other: [4, 16, 32] and [64, 32], but not [64, 32] and [32, 64]."""
    if not all(is_contiguous(view.size, view.stride) for view in (view_a, view_b)):
        return False
    sizes_a, sizes_b = ({math.prod(view.size[dim:]) for dim in range(len(view.size) + 1)} for view in (view_a, view_b))
    return max(sizes_a) == max(sizes_b) and (sizes_a <= sizes_b or sizes_b <= sizes_a)


def _link_ways(
    links: Links,
    flows: Sequence[tuple[Side, StorageFlow]],
    ways: Sequence[Sequence[int]],
    readers: Mapping[Side, Mapping[FlowValue, Sequence[int]]],
    read_alike: Mapping[FlowValue, Collection[FlowValue]],
) -> None:
    """Link the results of both sides' `ways` to compute one op, which are the numbers of their nodes.

    For each number of elements and dtype, the last results that are used elsewhere are linked. Nothing is linked if
    pairs read results of both ways at the same places (`read_alike`): such links are surer.
    """
    last_uses: list[dict[Hashable, Use]] = []
    inner: list[set[FlowValue]] = []
    for (side, flow), numbers in zip(flows, ways, strict=True):
        made_uses = [use for number in numbers for use in flow.nodes[number].made]
        used = [use for use in made_uses if any(reader not in numbers for reader in readers[side].get(use.value, ()))]
        last_uses.append({(math.prod(use.view.size), use.view.dtype): use for use in used})
        inner.append({use.value for use in made_uses})
    if any(value_b in inner[1] for value_a in inner[0] for value_b in read_alike.get(value_a, ())):
        return
    for key in last_uses[0].keys() & last_uses[1].keys():
        links.connect(last_uses[0][key], last_uses[1][key])


Copied = tuple[Use, Use, Callable[[View], View | None]]
"""The view that was copied, the copy, and a function that returns the copied view for a view of the source."""


def copied_views(flow: StorageFlow) -> list[Copied]:
    """Return the copies that a backend without views makes in place of views, such as `t_copy` for `t`."""
    copies: list[Copied] = []
    for node in flow.nodes:
        operation = view_behind(node.execution.operation)
        if operation is not None and node.reads and node.makes and node.makes[0] is not None:
            viewed = functools.partial(_viewed, operation, node.call.arguments[1:])
            copies.append((node.reads[0], node.makes[0], viewed))
    return copies


def _viewed(operation: Any, arguments: Sequence[Any], view: View) -> View | None:
    """Return the result of a view op on this view; None if the op cannot return a view of it."""
    try:
        flat = torch.empty(view.extent, dtype=view.dtype, device="meta")
        viewed_tensor = operation(flat.as_strided(view.size, view.stride, view.offset), *arguments)
    except (RuntimeError, IndexError, TypeError):
        return None
    return replace(
        view,
        offset=viewed_tensor.storage_offset(),
        size=tuple(viewed_tensor.size()),
        stride=tuple(viewed_tensor.stride()),
    )


def _link_copies(links: Links, side: Side, copies: Sequence[Copied]) -> None:
    """Link a copy to a view of the source's counterpart, and a source to the counterpart of its copy.

    The other side is linked to the source, which exists whether or not the copy is made.
    """
    own_links, far_links = links.of[side], links.of[other(side)]
    for source, copy, viewed in copies:
        link = own_links.get(source.value)
        if link is not None and copy.value not in own_links:
            shown_view = _seen_through(link, source.view)
            far_view = None if shown_view is None else viewed(shown_view)
            if far_view is not None:
                own_links[copy.value] = Link(copy.view, far_view, link.value)
    for source, copy, viewed in reversed(copies):
        link = own_links.get(copy.value)
        if link is not None and source.value not in own_links:
            own_view, far_view = viewed(source.view), _seen_through(link, copy.view)
            if own_view is not None and far_view is not None:
                own_links[source.value] = Link(own_view, far_view, link.value)
        back = None if link is None else far_links.get(link.value)
        if (
            link is not None
            and back is not None
            and back.value == copy.value
            and layout_of(back.theirs) == layout_of(copy.view)
        ):
            shown_view = viewed(source.view)
            if shown_view is not None:
                far_links[link.value] = Link(back.mine, shown_view, source.value)


def _before_expansion(use_a: Use, use_b: Use, expanded: Mapping[FlowValue, Use]) -> tuple[Use, Use]:
    """Return the uses to link: those of the source, if the other side has copied an expanded view.

    A view that shows an element more than once cannot be written to.
    """
    source = expanded.get(use_b.value)
    if source is None or use_a.view.size != use_b.view.size or len(source.view.size) != len(use_a.view.size):
        return use_a, use_b
    shown = zip(use_a.view.size, use_a.view.stride, source.view.size, strict=True)
    if not all(n == m or (m == 1 and not step) for n, step, m in shown):
        return use_a, use_b
    plain = replace(use_a.view, size=source.view.size, stride=tuple(step or 1 for step in use_a.view.stride))
    return Use(plain, use_a.value), source


def _seen_through(link: Link, view: View) -> View | None:
    """Return the other side's view for another view of a linked value; None if the link does not determine it."""
    if layout_of(link.mine) == layout_of(view):
        return link.theirs
    if layout_of(link.mine) == layout_of(link.theirs):
        return replace(view, slot=link.theirs.slot)
    return None


def is_turned_product(node_a: FlowNode, node_b: FlowNode, links: Links) -> bool:
    """Check whether two products are transposes of each other, (B'A')' for AB.

    Autograd computes the transpose for a weight that is laid out column by column.
    """
    if not node_a.call.name == node_b.call.name == "mm" or len(node_a.reads) != 2 or len(node_b.reads) != 2:
        return False
    (a, b), (c, d) = node_a.reads, node_b.reads
    crossed = links.are_linked(a.value, d.value) and links.are_linked(b.value, c.value)
    straight = links.are_linked(a.value, c.value) and links.are_linked(b.value, d.value)
    return (
        crossed
        and not straight
        and all(straight_use.view.size == turned_use.view.size[::-1] for straight_use, turned_use in ((a, d), (b, c)))
    )


def transposed(use: Use) -> Use:
    view = use.view
    return Use(replace(view, size=view.size[::-1], stride=view.stride[::-1]), use.value)


def common_reads(node_a: FlowNode, node_b: FlowNode) -> list[tuple[Use, Use]]:
    """Return the pairs of views that two calls take at the same places among their arguments."""
    return [
        (argument_a[1], argument_b[1])
        for argument_a, argument_b in zip(arguments_of(node_a), arguments_of(node_b), strict=False)
        if argument_a[1] is not None and argument_b[1] is not None
    ]


def arguments_of(node: FlowNode) -> list[tuple[Any, Use | None]]:
    """Return all arguments of a call, flat and in order: each recorded leaf, with its use if it is a view."""
    reads = iter(node.reads)
    values = [*node.call.arguments, *node.call.keywords.values()]
    return [(leaf, next(reads) if isinstance(leaf, View) else None) for leaf in leaves(values)]
