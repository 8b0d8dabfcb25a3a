"""Which values of the two tapes stand for each other, so that a call of one side can read what the other has made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..tape.tape import View, leaves
from .alignment import Block, recomputed
from .storage_flow import SIDES, Flow, Node, Side, Use, Value, layout_of


@dataclass(frozen=True, slots=True)
class Link:
    """The other side's value for one of this side's, both through the views by which they correspond."""

    mine: View
    theirs: View
    value: Value


@dataclass(slots=True)
class Links:
    """The links of each side. They need not be inverse: what an extra op makes is, for the other side, what it was made from."""

    of: dict[Side, dict[Value, Link]] = field(default_factory=lambda: {"a": {}, "b": {}})

    def connect(self, a: Use, b: Use) -> None:
        """Let both values stand for each other where nothing does yet."""
        if a.view.size != b.view.size:
            return
        self.of["a"].setdefault(a.value, Link(a.view, b.view, b.value))
        self.of["b"].setdefault(b.value, Link(b.view, a.view, a.value))

    def are_linked(self, a: Value, b: Value) -> bool:
        mine, theirs = self.of["a"].get(a), self.of["b"].get(b)
        return (mine is not None and mine.value == b) or (theirs is not None and theirs.value == a)


def linked(a: Flow, b: Flow, blocks: Sequence[Block]) -> Links:
    """Link what the tapes name alike, what pairs make, and what pairs read where it was made by no pair."""
    links = Links()
    names = [name for name in a.watched if name in b.watched]
    _connect_states(links, a, b, names)
    unpaired: dict[Side, set[int]] = {
        side: {node for block in blocks if not block.is_pair for node in block.of(side)} for side in SIDES
    }
    pairs = [(a.nodes[block.a[0]], b.nodes[block.b[0]]) for block in blocks if block.is_pair]
    _connect_inputs(links, a, b, pairs)
    for block in blocks:
        if block.is_pair:
            _connect_pair(links, a, b, block, unpaired)
    for name in names:
        links.connect(a.watched[name], b.watched[name])
    _connect_recomputed(links.of["a"], a)
    _connect_recomputed(links.of["b"], b)
    return links


def _connect_recomputed(known: dict[Value, Link], flow: Flow) -> None:
    """Link what is computed once more to what the first computation is linked to."""
    for number, first in recomputed(flow).items():
        for mine, earlier in zip(flow.nodes[number].makes, flow.nodes[first].makes, strict=False):
            link = None if earlier is None else known.get(earlier.value)
            if mine is None or link is None or mine.view.size != link.mine.size:
                continue
            known.setdefault(mine.value, Link(mine.view, link.theirs, link.value))


def _connect_states(links: Links, a: Flow, b: Flow, names: Iterable[str]) -> None:
    """Link what the step started from, known by the names that it has at its end."""
    for name in names:
        if name.startswith(("parameter ", "buffer ", "state ")):
            ours, theirs = a.watched[name], b.watched[name]
            if ours.value.slot in a.tape.inputs and theirs.value.slot in b.tape.inputs:
                links.connect(
                    Use(ours.view, Value(ours.value.slot, 0)), Use(theirs.view, Value(theirs.value.slot, 0))
                )


def _connect_inputs(links: Links, a: Flow, b: Flow, pairs: Iterable[tuple[Node, Node]]) -> None:
    """Link what both sides start from: by equal contents wherever there are such, before places among arguments count."""
    for left, right in pairs:
        for ours, theirs in common_reads(left, right):
            mine, yours = _input(a, ours.value), _input(b, theirs.value)
            known = ours.value in links.of["a"] or theirs.value in links.of["b"]
            if mine is None or yours is None or known or layout_of(ours.view) != layout_of(theirs.view):
                continue
            if mine.numel() == yours.numel() and bool((mine == yours).all()):
                links.connect(ours, theirs)


def _input(flow: Flow, value: Value) -> torch.Tensor | None:
    return flow.tape.inputs.get(value.slot) if value.version == 0 else None


def _connect_pair(links: Links, a: Flow, b: Flow, block: Block, unpaired: Mapping[Side, set[int]]) -> None:
    left, right = a.nodes[block.a[0]], b.nodes[block.b[0]]
    for ours, theirs in common_reads(left, right):
        makers = a.makers.get(ours.value), b.makers.get(theirs.value)
        loose = makers[0] in unpaired["a"] or makers[1] in unpaired["b"]
        known = ours.value in links.of["a"] or theirs.value in links.of["b"]
        if loose or (makers == (None, None) and not known):
            links.connect(ours, theirs)
    for mine, yours in zip(left.makes, right.makes, strict=False):
        if mine is not None and yours is not None:
            links.connect(mine, yours)
    for mine, yours in zip(left.writes, right.writes, strict=False):
        links.connect(mine, yours)
    if bool(left.writes) != bool(right.writes):  # in place on one side only
        _connect_in_place(links, left, right)


def _connect_in_place(links: Links, left: Node, right: Node) -> None:
    for mine, yours in zip(left.made, right.made, strict=False):
        links.connect(mine, yours)


def common_reads(left: Node, right: Node) -> list[tuple[Use, Use]]:
    """The views that two calls take at the same places among their arguments."""
    return [
        (ours[1], theirs[1])
        for ours, theirs in zip(arguments_of(left), arguments_of(right), strict=False)
        if ours[1] is not None and theirs[1] is not None
    ]


def arguments_of(node: Node) -> list[tuple[Any, Use | None]]:
    """All that a call takes, flat and in order: the recorded leaf, with its use where it is a view."""
    reads = iter(node.reads)
    values = [*node.call.arguments, *node.call.keywords.values()]
    return [(leaf, next(reads) if isinstance(leaf, View) else None) for leaf in leaves(values)]
