"""Pair the ops of two sides: the same ops, decomposed calls, replaced ops, and ops on one side only."""

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
    """Ops of A and of B that do the same work; see `NodePair` for `kind` and `by`.

    `represents` is the kind of op that these ops make up together.
    """

    kind: str
    represents: str
    a: tuple[Op, ...]
    b: tuple[Op, ...]
    by: str = ""

    @property
    def first(self) -> Op:
        return (*self.a, *self.b)[0]


def pair_ops(a: Sequence[Op], b: Sequence[Op]) -> list[Matched]:
    """Pair the ops of two sides; every op is in exactly one of the results."""
    # First, the ops of a decomposed call represent the whole op, if the other side has that op.
    whole_a, whole_b = wholes_of(a, kinds_in(b)), wholes_of(b, kinds_in(a))
    matching = _matched(a, b, (whole_a, whole_b), views=False, carried=())
    # A group without a partner is dissolved: a second matching pairs its ops one by one.
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
    pairs = [pair for u, v in matching.mates[0].items() for pair in _of_units(matching, u, v)]
    # Then the computing ops that are still unpaired are grouped into regions, and regions with the same border are
    # paired.
    for represents, in_a, in_b in same_regions(matching):
        alone = len(in_a) == len(in_b) == 1
        kind = "group" if not alone else "same" if in_a[0].kind == in_b[0].kind else "replaced"
        pairs.append(Matched(kind, represents, in_a, in_b, "data flow"))
    # Views come last, because they would interrupt the data flow; all other pairs are carried over.
    with_views = _matched(a, b, wholes, views=True, carried=_pairs_by_op(matching))
    for u, v in with_views.mates[0].items():
        if passes_through(with_views.sides[0][u].kind):
            pairs += _of_units(with_views, u, v)
    # The results are in the order of A. Ops found only in B come last, in the order of B.
    all_pairs = [*_by_calls(pairs), *_left_over(a, b, pairs)]
    return sorted(all_pairs, key=lambda pair: (0, pair.a[0].number) if pair.a else (1, pair.b[0].number))


def _matched(
    a: Sequence[Op],
    b: Sequence[Op],
    wholes: tuple[Whole, Whole],
    *,
    views: bool,
    carried: Sequence[tuple[int, int, str]],
) -> Matching:
    """Match all units, beginning with the pairs of an earlier matching.

    `carried` identifies these pairs by the numbers of their first ops.
    """
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
    # The criterion that made the pair, and the other criteria that agree with it.
    node_a, node_b = x.first.node, y.first.node
    agreeing = {
        "module": node_a.module is not None and node_a.module == node_b.module,
        "source": node_a.source != "" and node_a.source == node_b.source,
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


def _by_calls(pairs: Sequence[Matched]) -> Iterator[Matched]:
    """Join the pairs of one node: so far, each tensor of a `_foreach_` node is a separate op."""
    group_of: dict[tuple[str, int], int] = {}
    groups: dict[int, list[Matched]] = {}

    def calls_of(matched: Matched) -> list[tuple[str, int]]:
        return [("a", op.call) for op in matched.a] + [("b", op.call) for op in matched.b]

    for number, pair in enumerate(pairs):
        sharing = sorted({group_of[call] for call in calls_of(pair) if call in group_of})
        into = sharing[0] if sharing else number
        groups.setdefault(into, []).append(pair)
        # This pair may join groups that were apart until now.
        for absorbed in sharing[1:]:
            groups[into] += groups.pop(absorbed)
            group_of.update((call, into) for member in groups[into] for call in calls_of(member))
        group_of.update(dict.fromkeys(calls_of(pair), into))
    for members in groups.values():
        if len(members) == 1:
            yield members[0]
            continue
        a = tuple(sorted((op for member in members for op in member.a), key=lambda op: op.number))
        b = tuple(sorted((op for member in members for op in member.b), key=lambda op: op.number))
        single = len({op.call for op in a}) == len({op.call for op in b}) == 1
        yield Matched("same" if single else "group", members[0].represents, a, b, members[0].by)


def _left_over(a: Sequence[Op], b: Sequence[Op], pairs: Sequence[Matched]) -> Iterator[Matched]:
    """Yield the ops that are in no pair, one result for each node."""
    for side, ops in (("a", a), ("b", b)):
        paired = {op.call for pair in pairs for op in (pair.a if side == "a" else pair.b)}
        left: dict[int, list[Op]] = {}
        for op in ops:
            if op.call not in paired:
                left.setdefault(op.call, []).append(op)
        for ops_of_node in left.values():
            alone = tuple(ops_of_node)
            yield Matched(
                f"only-{side}", ops_of_node[0].kind, alone if side == "a" else (), () if side == "a" else alone
            )


# Unpaired regions are paired if both read the same values and pass values to the same ops.

LARGEST = 40
"""Regions with more units than this are never paired."""


@dataclass(frozen=True, slots=True)
class _Region:
    """Connected unpaired units.

    `ins` and `outs` are the region's border: neighbouring pairs, by their numbers in A, and the script's names for
    values.
    """

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
    """Yield the regions with the same border: the kind that they represent, and their ops on both sides.

    Several regions count as one if together they have the border of one region of the other side.
    """
    sides = tuple(
        [candidate for candidate in _regions(matching, side) if candidate.ins and candidate.outs] for side in (0, 1)
    )
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
        others = [candidate for candidate in sides[1 - side] if id(candidate) not in done]
        for region, together in _together([candidate for candidate in regions if id(candidate) not in done], others):
            done |= {id(region), *map(id, together)}
            yield from _same([region], together) if side == 0 else _same(together, [region])


def _together(regions: Sequence[_Region], others: Sequence[_Region]) -> Iterator[tuple[_Region, list[_Region]]]:
    """Yield each region with the regions of the other side that together have its border."""
    at: dict[Hashable, list[_Region]] = defaultdict(list)
    for other in others:
        for out in other.outs:
            at[other.phase, out].append(other)
    used: set[int] = set()
    for region in regions:
        near = {
            id(neighbour): neighbour
            for out in region.outs
            for neighbour in at[region.phase, out]
            if id(neighbour) not in used
        }
        inside = [
            neighbour for neighbour in near.values() if neighbour.outs <= region.outs and neighbour.ins <= region.ins
        ]
        inside.sort(key=lambda neighbour: neighbour.units[0].number)
        ins = frozenset[Hashable]().union(*(neighbour.ins for neighbour in inside))
        outs = frozenset[Hashable]().union(*(neighbour.outs for neighbour in inside))
        if len(inside) > 1 and ins == region.ins and outs == region.outs:
            used |= set(map(id, inside))
            yield region, inside


def _same(lefts: Sequence[_Region], rights: Sequence[_Region]) -> Iterator[tuple[str, tuple[Op, ...], tuple[Op, ...]]]:
    left, right = (tuple(unit for region in regions for unit in region.units) for regions in (lefts, rights))
    if max(len(left), len(right)) > LARGEST:
        return
    # If a side has only one op, the pair represents that op. Otherwise it represents the last op of the side whose last
    # op sorts first. The result does not depend on which side is A.
    fewer = min((left, right), key=lambda units: (len(units), units[-1].kind))
    represents = fewer[0].kind if len(fewer) == 1 else min(left[-1].kind, right[-1].kind)
    yield represents, _ops(left), _ops(right)


def _ops(units: tuple[Unit, ...]) -> tuple[Op, ...]:
    return tuple(sorted((op for unit in units for op in unit.ops), key=lambda op: op.number))


def _regions(matching: Matching, side: int) -> Iterator[_Region]:
    units, mates = matching.sides[side], matching.mates[side]

    def pair(unit_number: int) -> Hashable:
        return unit_number if side == 0 else mates[unit_number]  # borders use the numbers of A on both sides

    seen: set[int] = set()
    for unit in units:
        if unit.number in mates or unit.number in seen or role_of(unit.kind) == "fill":
            continue
        # Collect the connected unpaired units of the same phase.
        seen.add(unit.number)
        members, waiting = [unit], [unit]
        while waiting:
            current = waiting.pop()
            for number, _ in (*current.reads, *current.readers):
                near = units[number]
                if number in mates or number in seen or near.first.phase != unit.first.phase:
                    continue
                seen.add(number)
                members.append(near)
                waiting.append(near)
        members.sort(key=lambda member: member.number)
        ins: set[Hashable] = {label for member in members for label in member.labels}
        ins |= {pair(maker) for member in members for maker, _ in member.reads if maker in mates}
        # The partitioner decides which ops of another phase read a value: these are not part of the border.
        outs: set[Hashable] = {name for member in members for name in member.names}
        takers = {taker for member in members for taker, _ in member.readers if taker in mates}
        outs |= {pair(taker) for taker in takers if units[taker].first.phase == members[0].first.phase}
        yield _Region(tuple(members), frozenset(ins), frozenset(outs))
