"""The pairing of all ops of two sides: the same ops, decomposed calls, what is replaced, and what only one
side has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .anchors import match
from .graph_regions import same_regions
from .matching import Matching
from .op_kinds import passes_through
from .paired_ops import Op, computing
from .value_flow import GroupId, Unit, flow_of, kinds_in, wholes_of

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
    wholes = (wholes_of(a, kinds_in(b)), wholes_of(b, kinds_in(a)))
    matching = _matched(a, b, wholes, views=False, carried=())
    if dissolved := _unpaired_groups(matching):
        wholes = (_without(wholes[0], dissolved[0]), _without(wholes[1], dissolved[1]))
        matching = _matched(a, b, wholes, views=False, carried=_pairs_by_op(matching))
    found = [one for u, v in matching.mates[0].items() for one in _of_units(matching, u, v)]
    found += [_of_region(*region) for region in same_regions(matching)]
    with_views = _matched(a, b, wholes, views=True, carried=_pairs_by_op(matching))
    found += [
        one
        for u, v in with_views.mates[0].items()
        if passes_through(with_views.sides[0][u].kind)
        for one in _of_units(with_views, u, v)
    ]
    return _ordered([*_by_calls(found), *_left_over(a, b, found)])


def _matched(
    a: Sequence[Op],
    b: Sequence[Op],
    wholes: tuple[Whole, Whole],
    *,
    views: bool,
    carried: Sequence[tuple[int, int, str]],
) -> Matching:
    """Match all units, beginning with the pairs of another matching, given by the numbers of their first
    ops."""
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


def _unpaired_groups(matching: Matching) -> tuple[set[GroupId], set[GroupId]] | None:
    found: tuple[set[GroupId], set[GroupId]] = (set(), set())
    for side, units in enumerate(matching.sides):
        found[side].update(
            unit.first.group
            for unit in units
            if unit.grouped and unit.number not in matching.mates[side] and unit.first.group is not None
        )
    return found if any(found) else None


def _without(whole: Whole, dissolved: set[GroupId]) -> Whole:
    return lambda op: None if op.group in dissolved else whole(op)


def _of_units(matching: Matching, u: int, v: int) -> Iterator[Matched]:
    x, y = matching.sides[0][u], matching.sides[1][v]
    by = _evidence(matching, x, y)
    parts = (x.ops, y.ops)
    if [op.kind for op in x.ops] != [op.kind for op in y.ops]:
        parts = (computing(x.ops), computing(y.ops))
    if parts[0] and [op.kind for op in parts[0]] == [op.kind for op in parts[1]]:
        yield from (Matched("same", one.kind, (one,), (other,), by) for one, other in zip(*parts, strict=True))
    elif len(x.ops) == len(y.ops) == 1:
        yield Matched("replaced", x.kind, x.ops, y.ops, by)
    else:
        yield Matched("group", x.kind, x.ops, y.ops, by)


def _of_region(stands_for: str, a: tuple[Op, ...], b: tuple[Op, ...]) -> Matched:
    alone = len(a) == len(b) == 1
    kind = "group" if not alone else "same" if a[0].kind == b[0].kind else "replaced"
    return Matched(kind, stands_for, a, b, "data flow")


def _evidence(matching: Matching, x: Unit, y: Unit) -> str:
    """What they were paired by, and what else says the same."""
    one, other = x.first.node, y.first.node
    agreeing = {
        "module": one.module is not None and one.module == other.module,
        "source": one.source != "" and one.source == other.source,
        "data flow": bool(x.labels and set(x.labels) & set(y.labels)) or bool(x.names and x.names == y.names),
        "kind": x.kind == y.kind,
    }
    first = matching.by[x.number]
    return ", ".join([first, *(name for name, agrees in agreeing.items() if agrees and name != first)])


def _by_calls(found: Sequence[Matched]) -> Iterator[Matched]:
    """Join what belongs to one node: the tensors of a `_foreach_` node, which are ops of their own until
    here."""
    group_of: dict[tuple[str, int], int] = {}
    groups: dict[int, list[Matched]] = {}
    for number, one in enumerate(found):
        calls = [("a", op.call) for op in one.a] + [("b", op.call) for op in one.b]
        known = sorted({group_of[call] for call in calls if call in group_of})
        into = known[0] if known else number
        groups.setdefault(into, []).append(one)
        for other in known[1:]:
            groups[into] += groups.pop(other)
            group_of.update(
                {
                    call: into
                    for two in groups[into]
                    for call in (*(("a", op.call) for op in two.a), *(("b", op.call) for op in two.b))
                }
            )
        group_of.update(dict.fromkeys(calls, into))
    for members in groups.values():
        yield members[0] if len(members) == 1 else _joined(members)


def _joined(members: Sequence[Matched]) -> Matched:
    a = tuple(sorted((op for one in members for op in one.a), key=lambda op: op.number))
    b = tuple(sorted((op for one in members for op in one.b), key=lambda op: op.number))
    single = len({op.call for op in a}) == len({op.call for op in b}) == 1
    return Matched("same" if single else "group", members[0].stands_for, a, b, members[0].by)


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


def _ordered(found: Sequence[Matched]) -> list[Matched]:
    """In the order of A; what only B has comes after it, in the order of B."""
    return sorted(found, key=lambda one: (0, one.a[0].number) if one.a else (1, one.b[0].number))
