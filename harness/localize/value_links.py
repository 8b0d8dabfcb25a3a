"""Says which values of the two tapes stand for each other, and what two paired calls are told differently."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..tape.tape import View, leaves
from ..torch_private.operators import view_behind
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
    """The other side's value for one of this side's, both through the views by which they correspond."""

    mine: View
    theirs: View
    value: FlowValue


@dataclass(slots=True)
class Links:
    """The links of each side. They need not be inverse: what an extra op makes is, for the other side, what
    it was made from. `again` are each side's nodes that compute once more what a node of the same block has before."""

    of: dict[Side, dict[FlowValue, Link]] = field(default_factory=lambda: {"a": {}, "b": {}})
    again: dict[Side, dict[int, int]] = field(default_factory=lambda: {"a": {}, "b": {}})

    def connect(self, a: Use, b: Use) -> None:
        """Let both values stand for each other where nothing does yet, though one side has folded dimensions."""
        if a.view.size != b.view.size:
            if not are_folded(a.view, b.view):
                return
            a = Use(replace(a.view, size=b.view.size, stride=b.view.stride), a.value)
        self.of["a"].setdefault(a.value, Link(a.view, b.view, b.value))
        self.of["b"].setdefault(b.value, Link(b.view, a.view, a.value))

    def are_linked(self, a: FlowValue, b: FlowValue) -> bool:
        mine, theirs = self.of["a"].get(a), self.of["b"].get(b)
        return (mine is not None and mine.value == b) or (theirs is not None and theirs.value == a)


def linked(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block], *, own_batch: bool = True) -> Links:
    """Link what the tapes name alike, what pairs make, and what pairs read where it was made by no pair. With
    `own_batch` the batches of both scripts stand for each other also where the reference's was put in place of one.

    The order counts, as the first link of a value stays: what is surest comes first.
    """
    links = Links()
    flows: tuple[tuple[Side, StorageFlow], ...] = (("a", a), ("b", b))
    names = [name for name in a.watched if name in b.watched]
    # What the step started from, known by the names that it has at its end
    for name in names:
        if name.startswith(("parameter ", "buffer ", "state ")):
            one, another = (flow.tape.starts.get(name, flow.watched[name].view) for flow in (a, b))
            if one.slot in a.tape.inputs and another.slot in b.tape.inputs:
                links.connect(Use(one, FlowValue(one.slot, 0)), Use(another, FlowValue(another.slot, 0)))
    copies = {side: copied_views(flow) for side, flow in flows}
    # What a copy of a view has made is what its name says, and what the view was of is known by it, too
    copied = {side: {copy.value for _, copy, _ in copies[side]} for side in SIDES}
    for name in names:
        if a.watched[name].value in copied["a"] or b.watched[name].value in copied["b"]:
            links.connect(a.watched[name], b.watched[name])
    for side in SIDES:
        _link_copies(links, side, copies[side])
    given = [(a.given[name], b.given[name]) for name in a.given if name in b.given]
    # what was put in its place has the reference's content, which would be linked first
    for ours, theirs in given if own_batch else ():
        if ours.value not in a.makers and theirs.value not in b.makers:
            links.connect(ours, theirs)
    links.again = {
        side: again_within(flow, [block.of(side) for block in blocks if block.paired]) for side, flow in flows
    }
    once = [
        [[one for one in block.of(side) if one not in links.again[side]] for side in SIDES]
        for block in blocks
        if block.paired
    ]
    pairs = [(a.nodes[ours[0]], b.nodes[theirs[0]]) for ours, theirs in once if len(ours) == len(theirs) == 1]
    # What both sides start from: by equal contents wherever there are such, before places among arguments count
    for left, right in pairs:
        for ours, theirs in common_reads(left, right):
            mine = a.tape.inputs.get(ours.value.slot) if ours.value.version == 0 else None
            yours = b.tape.inputs.get(theirs.value.slot) if theirs.value.version == 0 else None
            known = ours.value in links.of["a"] or theirs.value in links.of["b"]
            if mine is None or yours is None or known or layout_of(ours.view) != layout_of(theirs.view):
                continue
            if mine.numel() == yours.numel() and bool((mine == yours).all()):
                links.connect(ours, theirs)
    expanded = {copy.value: source for source, copy, _ in copies["b"] if copy.view.size != source.view.size}
    unpaired: dict[Side, set[int]] = {
        side: {node for block in blocks if not block.is_pair for node in block.of(side)} for side in SIDES
    }
    readers = {side: readers_of(flow) for side, flow in flows}
    for side, flow in flows:
        for watched in flow.watched.values():  # the end of the step reads it
            readers[side].setdefault(watched.value, []).append(len(flow.nodes))
    read_alike: dict[FlowValue, set[FlowValue]] = {}
    for left_read, right_read in (one for pair in pairs for one in common_reads(*pair)):
        read_alike.setdefault(left_read.value, set()).add(right_read.value)
    for left_numbers, right_numbers in once:
        if not len(left_numbers) == len(right_numbers) == 1:
            _link_ways(links, flows, (left_numbers, right_numbers), readers, read_alike)
            continue
        left, right = a.nodes[left_numbers[0]], b.nodes[right_numbers[0]]
        for ours, theirs in common_reads(left, right):
            makers = a.makers.get(ours.value), b.makers.get(theirs.value)
            loose = makers[0] in unpaired["a"] or makers[1] in unpaired["b"]
            known = ours.value in links.of["a"] or theirs.value in links.of["b"]
            if loose or (makers == (None, None) and not known):
                ours, theirs = _before_expansion(ours, theirs, expanded)
                # a copy of a view is known by what it was copied from
                if ours.value not in copied["a"] and theirs.value not in copied["b"]:
                    links.connect(ours, theirs)
        made: list[tuple[Sequence[Use | None], Sequence[Use | None]]]
        made = [(left.makes, right.makes), (left.writes, right.writes)]
        if bool(left.writes) != bool(right.writes):  # in place on one side only
            made.append((left.made, right.made))
        turned = is_turned_product(left, right, links)
        for mine_made, yours_made in made:
            for use, other_use in zip(mine_made, yours_made, strict=False):
                if use is None or other_use is None:
                    continue
                # Other whole numbers say something else: the offsets within a window that a compiler has for indices
                dtypes = {one.view.dtype for one in (use, other_use)}
                if len(dtypes) == 1 or any(one.is_floating_point or one.is_complex for one in dtypes):
                    links.connect(use, transposed(other_use) if turned else other_use)
    for ours, theirs in given:
        links.connect(ours, theirs)
    for name in names:
        links.connect(a.watched[name], b.watched[name])
    # What is computed once more, to what the first computation is linked to
    for side, flow in flows:
        known_links = links.of[side]
        for number, first in links.again[side].items():
            for again, earlier in zip(flow.nodes[number].makes, flow.nodes[first].makes, strict=False):
                link = None if earlier is None else known_links.get(earlier.value)
                if again is not None and link is not None and again.view.size == link.mine.size:
                    known_links.setdefault(again.value, Link(again.view, link.theirs, link.value))
    for side in SIDES:
        _link_copies(links, side, copies[side])
    return links


def are_folded(one: View, another: View) -> bool:
    """Whether two views show the same elements in the same order, some dimensions of the one being one of the other:
    [4, 16, 32] and [64, 32], and never [64, 32] and [32, 64]."""
    if not all(is_contiguous(view.size, view.stride) for view in (one, another)):
        return False
    mine, yours = ({math.prod(view.size[at:]) for at in range(len(view.size) + 1)} for view in (one, another))
    return max(mine) == max(yours) and (mine <= yours or yours <= mine)


def _link_ways(
    links: Links,
    flows: Sequence[tuple[Side, StorageFlow]],
    ways: Sequence[Sequence[int]],
    readers: Mapping[Side, Mapping[FlowValue, Sequence[int]]],
    read_alike: Mapping[FlowValue, Collection[FlowValue]],
) -> None:
    """Link what two sides' ways to compute one op give, the nodes of either: of each number of elements the last that
    is used elsewhere. What pairs read of it at the same places, `read_alike`, is surer, and linked with them."""
    found: list[dict[Hashable, Use]] = []
    inner: list[set[FlowValue]] = []
    for (side, flow), numbers in zip(flows, ways, strict=True):
        made = [use for number in numbers for use in flow.nodes[number].made]
        used = [use for use in made if any(one not in numbers for one in readers[side].get(use.value, ()))]
        found.append({(math.prod(use.view.size), use.view.dtype): use for use in used})
        inner.append({use.value for use in made})
    if any(yours in inner[1] for mine in inner[0] for yours in read_alike.get(mine, ())):
        return
    for key in found[0].keys() & found[1].keys():
        links.connect(found[0][key], found[1][key])


Copied = tuple[Use, Use, Callable[[View], View | None]]
"""A view that was copied, the copy, and what makes of a view the one that was copied from it."""


def copied_views(flow: StorageFlow) -> list[Copied]:
    """The copies by which a backend without views has what a view is elsewhere, as `t_copy` is of `t`."""
    found: list[Copied] = []
    for node in flow.nodes:
        operation = view_behind(node.execution.operation)
        if operation is not None and node.reads and node.makes and node.makes[0] is not None:
            viewed = functools.partial(_viewed, operation, node.call.arguments[1:])
            found.append((node.reads[0], node.makes[0], viewed))
    return found


def _viewed(operation: Any, arguments: Sequence[Any], view: View) -> View | None:
    """What a view op makes of this view; None where it has no such view."""
    try:
        flat = torch.empty(view.extent, dtype=view.dtype, device="meta")
        seen = operation(flat.as_strided(view.size, view.stride, view.offset), *arguments)
    except (RuntimeError, IndexError, TypeError):
        return None
    return replace(view, offset=seen.storage_offset(), size=tuple(seen.size()), stride=tuple(seen.stride()))


def _link_copies(links: Links, side: Side, copies: Sequence[Copied]) -> None:
    """Let a copy stand for a view of what stands for the copied, and what was copied for what the copy stands for.
    The other side takes what was copied: it is there whether the copy is made or not."""
    known, far = links.of[side], links.of[other(side)]
    for source, copy, viewed in copies:
        link = known.get(source.value)
        if link is not None and copy.value not in known:
            seen = _seen_through(link, source.view)
            theirs = None if seen is None else viewed(seen)
            if theirs is not None:
                known[copy.value] = Link(copy.view, theirs, link.value)
    for source, copy, viewed in reversed(copies):
        link = known.get(copy.value)
        if link is not None and source.value not in known:
            mine, theirs = viewed(source.view), _seen_through(link, copy.view)
            if mine is not None and theirs is not None:
                known[source.value] = Link(mine, theirs, link.value)
        back = None if link is None else far.get(link.value)
        if (
            link is not None
            and back is not None
            and back.value == copy.value
            and layout_of(back.theirs) == layout_of(copy.view)
        ):
            seen = viewed(source.view)
            if seen is not None:
                far[link.value] = Link(back.mine, seen, source.value)


def _before_expansion(ours: Use, theirs: Use, expanded: Mapping[FlowValue, Use]) -> tuple[Use, Use]:
    """A view that shows an element more than once cannot be written: where the other side has copied one, what was
    expanded stands for what it was copied from."""
    source = expanded.get(theirs.value)
    if source is None or ours.view.size != theirs.view.size or len(source.view.size) != len(ours.view.size):
        return ours, theirs
    shown = zip(ours.view.size, ours.view.stride, source.view.size, strict=True)
    if not all(n == m or (m == 1 and not step) for n, step, m in shown):
        return ours, theirs
    plain = replace(ours.view, size=source.view.size, stride=tuple(step or 1 for step in ours.view.stride))
    return Use(plain, ours.value), source


def _seen_through(link: Link, view: View) -> View | None:
    """The other side's view for another view of what is linked; None where the link does not tell."""
    if layout_of(link.mine) == layout_of(view):
        return link.theirs
    if layout_of(link.mine) == layout_of(link.theirs):
        return replace(view, slot=link.theirs.slot)
    return None


def is_turned_product(left: FlowNode, right: FlowNode, links: Links) -> bool:
    """Whether two products are transposes of one another, (B'A')' for AB: autograd does so for a weight that lies
    column by column."""
    if not left.call.name == right.call.name == "mm" or len(left.reads) != 2 or len(right.reads) != 2:
        return False
    (a, b), (c, d) = left.reads, right.reads
    crossed = links.are_linked(a.value, d.value) and links.are_linked(b.value, c.value)
    straight = links.are_linked(a.value, c.value) and links.are_linked(b.value, d.value)
    return crossed and not straight and all(one.view.size == two.view.size[::-1] for one, two in ((a, d), (b, c)))


def transposed(use: Use) -> Use:
    view = use.view
    return Use(replace(view, size=view.size[::-1], stride=view.stride[::-1]), use.value)


def common_reads(left: FlowNode, right: FlowNode) -> list[tuple[Use, Use]]:
    """The views that two calls take at the same places among their arguments."""
    return [
        (ours[1], theirs[1])
        for ours, theirs in zip(arguments_of(left), arguments_of(right), strict=False)
        if ours[1] is not None and theirs[1] is not None
    ]


def arguments_of(node: FlowNode) -> list[tuple[Any, Use | None]]:
    """All that a call takes, flat and in order: the recorded leaf, with its use where it is a view."""
    reads = iter(node.reads)
    values = [*node.call.arguments, *node.call.keywords.values()]
    return [(leaf, next(reads) if isinstance(leaf, View) else None) for leaf in leaves(values)]
