"""Regions that no op of the other side answers to, paired where both take the same values and give to the
same ops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from .matching import Matching
from .op_kinds import role_of
from .paired_ops import Op
from .value_flow import Unit

LARGEST = 40
"""Regions with more units than this are no replacement of each other, whatever they stand between."""


@dataclass(frozen=True, slots=True)
class _Region:
    """Unpaired units that are connected: `ins` and `outs` are the pairs, by the numbers of A, and the
    script's names that are their border."""

    units: tuple[Unit, ...]
    ins: frozenset[Hashable]
    outs: frozenset[Hashable]

    @property
    def phase(self) -> str:
        return self.units[0].first.phase

    @property
    def border(self) -> Hashable:
        return self.phase, self.ins, self.outs


def same_regions(matching: Matching) -> Iterator[tuple[str, tuple[Op, ...], tuple[Op, ...]]]:
    """The regions with one border, as what they stand for and their ops on both sides; several regions count
    as one where together they have the border of one region of the other side."""
    sides = tuple([one for one in _regions(matching, side) if one.ins and one.outs] for side in (0, 1))
    of_border: tuple[dict[Hashable, list[_Region]], ...] = (defaultdict(list), defaultdict(list))
    for side, regions in enumerate(sides):
        for region in regions:
            of_border[side][region.border].append(region)
    done: set[int] = set()
    for border, lefts in of_border[0].items():
        rights = of_border[1].get(border, [])
        if len(lefts) == len(rights) == 1:
            done |= {id(lefts[0]), id(rights[0])}
            yield from _same(lefts, rights)
    for side, regions in enumerate(sides):
        others = [one for one in sides[1 - side] if id(one) not in done]
        for region, together in _together([one for one in regions if id(one) not in done], others):
            done |= {id(region), *map(id, together)}
            yield from _same([region], together) if side == 0 else _same(together, [region])


def _together(regions: Sequence[_Region], others: Sequence[_Region]) -> Iterator[tuple[_Region, list[_Region]]]:
    """Each region with the regions of the other side that make up its border."""
    at: dict[Hashable, list[_Region]] = defaultdict(list)
    for other in others:
        for out in other.outs:
            at[other.phase, out].append(other)
    taken: set[int] = set()
    for region in regions:
        near = {id(one): one for out in region.outs for one in at[region.phase, out] if id(one) not in taken}
        inside = [one for one in near.values() if one.outs <= region.outs and one.ins <= region.ins]
        inside.sort(key=lambda one: one.units[0].number)
        ins = frozenset[Hashable]().union(*(one.ins for one in inside))
        outs = frozenset[Hashable]().union(*(one.outs for one in inside))
        if len(inside) > 1 and ins == region.ins and outs == region.outs:
            taken |= set(map(id, inside))
            yield region, inside


def _same(lefts: Sequence[_Region], rights: Sequence[_Region]) -> Iterator[tuple[str, tuple[Op, ...], tuple[Op, ...]]]:
    left, right = (tuple(unit for one in of for unit in one.units) for of in (lefts, rights))
    if max(len(left), len(right)) <= LARGEST:
        yield _stands_for(left, right), _ops(left), _ops(right)


def _stands_for(left: tuple[Unit, ...], right: tuple[Unit, ...]) -> str:
    """The one op of the side that has one; else what the call was that it came from, or its last op."""
    for units in sorted((left, right), key=lambda units: (len(units), units[-1].kind)):
        if len(units) == 1:
            return units[0].kind
    return min(left[-1].kind, right[-1].kind)


def _ops(units: tuple[Unit, ...]) -> tuple[Op, ...]:
    return tuple(sorted((op for unit in units for op in unit.ops), key=lambda op: op.number))


def _regions(matching: Matching, side: int) -> Iterator[_Region]:
    units, mates = matching.sides[side], matching.mates[side]
    seen: set[int] = set()
    for unit in units:
        if unit.number in mates or unit.number in seen or role_of(unit.kind) == "fill":
            continue
        seen.add(unit.number)
        members, waiting = [unit], [unit]
        while waiting:
            one = waiting.pop()
            for other, _ in (*one.taken, *one.given):
                near = units[other]
                if other in mates or other in seen or near.first.phase != unit.first.phase:
                    continue
                seen.add(other)
                members.append(near)
                waiting.append(near)
        yield _bordered(matching, side, sorted(members, key=lambda one: one.number))


def _bordered(matching: Matching, side: int, members: list[Unit]) -> _Region:
    units, mates = matching.sides[side], matching.mates[side]

    def pair(number: int) -> Hashable:
        return number if side == 0 else mates[number]

    ins: set[Hashable] = {label for one in members for label in one.labels}
    ins |= {pair(other) for one in members for other, _ in one.taken if other in mates}
    outs: set[Hashable] = {name for one in members for name in one.names}
    takers = {other for one in members for other, _ in one.given if other in mates}
    outs |= {pair(other) for other in takers if units[other].first.phase == members[0].first.phase}
    return _Region(tuple(members), frozenset(ins), frozenset(outs))
