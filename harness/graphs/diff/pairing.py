"""The pairing of all ops of two sides: the same ops, decomposed calls, what is replaced, and what only one side has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from .matching import Matching, match
from .op_kinds import passes_through, role_of
from .paired_ops import Op, computing
from .value_flow import Unit, flow_of, kinds_in, wholes_of

Whole = Callable[[Op], str | None]


@dataclass(frozen=True, slots=True)
class Matched:
    """Ops of A and of B that do the same work; see `Pair` for `kind` and `by`. `stands_for` is the kind of op
    that they are together."""

    kind: str
    stands_for: str
    a: tuple[Op, ...]
    b: tuple[Op, ...]
    by: str = ""

    @property
    def first(self) -> Op:
        return (*self.a, *self.b)[0]


def pair_ops(a: Sequence[Op], b: Sequence[Op]) -> list[Matched]:
    """Pair the ops of two sides; every op is in exactly one of the results."""
    # First the ops of a decomposed call stand for the whole op, where the other side has that one.
    whole_a, whole_b = wholes_of(a, kinds_in(b)), wholes_of(b, kinds_in(a))
    matching = _matched(a, b, (whole_a, whole_b), views=False, carried=())
    # A group that found no partner is dissolved: its ops are paired one by one, in a second matching.
    dissolved = tuple(
        {unit.first.group for unit in units if unit.grouped and unit.number not in mates} - {None}
        for units, mates in zip(matching.sides, matching.mates, strict=True)
    )
    wholes: tuple[Whole, Whole] = (
        lambda op: None if op.group in dissolved[0] else whole_a(op),
        lambda op: None if op.group in dissolved[1] else whole_b(op),
    )
    if any(dissolved):
        matching = _matched(a, b, wholes, views=False, carried=_pairs_by_op(matching))
    found = [one for u, v in matching.mates[0].items() for one in _of_units(matching, u, v)]
    # Then what is left of computing ops, as regions between pairs.
    for stands_for, in_a, in_b in same_regions(matching):
        alone = len(in_a) == len(in_b) == 1
        kind = "group" if not alone else "same" if in_a[0].kind == in_b[0].kind else "replaced"
        found.append(Matched(kind, stands_for, in_a, in_b, "data flow"))
    # Last the views, which would only stand in the way of the data flow: with all other pairs given.
    with_views = _matched(a, b, wholes, views=True, carried=_pairs_by_op(matching))
    for u, v in with_views.mates[0].items():
        if passes_through(with_views.sides[0][u].kind):
            found += _of_units(with_views, u, v)
    # In the order of A; what only B has comes after it, in the order of B.
    every = [*_by_calls(found), *_left_over(a, b, found)]
    return sorted(every, key=lambda one: (0, one.a[0].number) if one.a else (1, one.b[0].number))


def _matched(
    a: Sequence[Op],
    b: Sequence[Op],
    wholes: tuple[Whole, Whole],
    *,
    views: bool,
    carried: Sequence[tuple[int, int, str]],
) -> Matching:
    """Match all units, beginning with the pairs of another matching, given by the numbers of their first ops."""
    flows = (flow_of(a, wholes[0], views=views), flow_of(b, wholes[1], views=views))
    matching = Matching(*flows)
    begun = []
    for x, y, why in carried:
        u, v = flows[0].unit_of[x], flows[1].unit_of[y]
        if u is not None and v is not None:
            matching.pair(u, v, why)
            begun.append((u, v))
    matching.spread(begun)
    match(matching)
    return matching


def _pairs_by_op(matching: Matching) -> list[tuple[int, int, str]]:
    a, b = matching.sides
    return [(a[u].first.number, b[v].first.number, matching.by[u]) for u, v in matching.mates[0].items()]


def _of_units(matching: Matching, u: int, v: int) -> Iterator[Matched]:
    x, y = matching.sides[0][u], matching.sides[1][v]
    # What they were paired by, and what else says the same.
    one, other = x.first.node, y.first.node
    agreeing = {
        "module": one.module is not None and one.module == other.module,
        "source": one.source != "" and one.source == other.source,
        "data flow": bool(x.labels and set(x.labels) & set(y.labels)) or bool(x.names and x.names == y.names),
        "kind": x.kind == y.kind,
    }
    why = matching.by[u]
    by = ", ".join([why, *(name for name, agrees in agreeing.items() if agrees and name != why)])
    parts = (x.ops, y.ops)
    if [op.kind for op in x.ops] != [op.kind for op in y.ops]:
        parts = (computing(x.ops), computing(y.ops))  # views within a group may differ
    if parts[0] and [op.kind for op in parts[0]] == [op.kind for op in parts[1]]:
        yield from (Matched("same", left.kind, (left,), (right,), by) for left, right in zip(*parts, strict=True))
    elif len(x.ops) == len(y.ops) == 1:
        yield Matched("replaced", x.kind, x.ops, y.ops, by)
    else:
        yield Matched("group", x.kind, x.ops, y.ops, by)


def _by_calls(found: Sequence[Matched]) -> Iterator[Matched]:
    """Join what belongs to one node: the tensors of a `_foreach_` node, which are ops of their own until here."""
    group_of: dict[tuple[str, int], int] = {}
    groups: dict[int, list[Matched]] = {}

    def calls_of(one: Matched) -> list[tuple[str, int]]:
        return [("a", op.call) for op in one.a] + [("b", op.call) for op in one.b]

    for number, one in enumerate(found):
        known = sorted({group_of[call] for call in calls_of(one) if call in group_of})
        into = known[0] if known else number
        groups.setdefault(into, []).append(one)
        # This one may tie together groups that were apart until now.
        for other in known[1:]:
            groups[into] += groups.pop(other)
            group_of.update((call, into) for two in groups[into] for call in calls_of(two))
        group_of.update(dict.fromkeys(calls_of(one), into))
    for members in groups.values():
        if len(members) == 1:
            yield members[0]
            continue
        a = tuple(sorted((op for one in members for op in one.a), key=lambda op: op.number))
        b = tuple(sorted((op for one in members for op in one.b), key=lambda op: op.number))
        single = len({op.call for op in a}) == len({op.call for op in b}) == 1
        yield Matched("same" if single else "group", members[0].stands_for, a, b, members[0].by)


def _left_over(a: Sequence[Op], b: Sequence[Op], found: Sequence[Matched]) -> Iterator[Matched]:
    """The ops that are in no pair, one for each node."""
    for side, ops in (("a", a), ("b", b)):
        paired = {op.call for one in found for op in (one.a if side == "a" else one.b)}
        left: dict[int, list[Op]] = {}
        for op in ops:
            if op.call not in paired:
                left.setdefault(op.call, []).append(op)
        for of in left.values():
            alone = tuple(of)
            yield Matched(f"only-{side}", of[0].kind, alone if side == "a" else (), () if side == "a" else alone)


# Regions that no op of the other side answers to, paired where both take the same values and give to the
# same ops.

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
    if max(len(left), len(right)) > LARGEST:
        return
    # It stands for the one op of the side that has one; else for its last op, the same whichever side is A.
    fewer = min((left, right), key=lambda units: (len(units), units[-1].kind))
    stands_for = fewer[0].kind if len(fewer) == 1 else min(left[-1].kind, right[-1].kind)
    yield stands_for, _ops(left), _ops(right)


def _ops(units: tuple[Unit, ...]) -> tuple[Op, ...]:
    return tuple(sorted((op for unit in units for op in unit.ops), key=lambda op: op.number))


def _regions(matching: Matching, side: int) -> Iterator[_Region]:
    units, mates = matching.sides[side], matching.mates[side]

    def pair(number: int) -> Hashable:
        return number if side == 0 else mates[number]  # a border is said in the numbers of A on both sides

    seen: set[int] = set()
    for unit in units:
        if unit.number in mates or unit.number in seen or role_of(unit.kind) == "fill":
            continue
        # What hangs together with it, unpaired and in its phase.
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
        members.sort(key=lambda one: one.number)
        ins: set[Hashable] = {label for one in members for label in one.labels}
        ins |= {pair(other) for one in members for other, _ in one.taken if other in mates}
        # Which ops of another phase take a value is decided by the partitioner, and no border.
        outs: set[Hashable] = {name for one in members for name in one.names}
        takers = {other for one in members for other, _ in one.given if other in mates}
        outs |= {pair(other) for other in takers if units[other].first.phase == members[0].first.phase}
        yield _Region(tuple(members), frozenset(ins), frozenset(outs))
