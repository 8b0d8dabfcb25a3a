"""Which unit of A does the work of which unit of B, found without a guess: what is ambiguous stays unpaired.

Anchors come first: units that are alone with a signature on their side, on both sides. From pairs the
matching spreads along the edges: the only `mul` that takes the one is the only `mul` that takes the other.
All of it treats A and B alike, so that exchanging them exchanges the result; the time grows with the number
of edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain

from .op_kinds import COMMUTATIVE, passes_through
from .value_flow import MIXED, Unit, ValueFlow

Pairs = dict[int, int]
Signature = Callable[[int, Unit], Hashable | None]
"""A unit of side 0 (A) or 1 (B) to what it can be told by, None when that is not known."""

CROWDED = 64
"""Units with more neighbours than this hand the matching on only while they are new."""


class Matching:
    """Pairs of units. `mates` are the pairs from A to B and from B to A, `by` says how a unit of A was found.
    While it is `strict`, units of different modules are not paired: modes seldom differ in the module of an
    op."""

    def __init__(self, a: ValueFlow, b: ValueFlow) -> None:
        self.sides = (a.units, b.units)
        self.mates: tuple[Pairs, Pairs] = ({}, {})
        self.by: dict[int, str] = {}
        self.strict = True
        self._origins = (_origins(a.units), _origins(b.units))

    def pair(self, u: int, v: int, why: str) -> None:
        self.mates[0][u] = v
        self.mates[1][v] = u
        self.by[u] = why

    def anchor(self, signature: Signature, why: str, *, several: bool = False) -> None:
        """Pair the units that are alone with their signature; with `several`, as many as many, in their
        order."""
        buckets: tuple[dict[Hashable, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for side, units in enumerate(self.sides):
            for unit in units:
                found = None if unit.number in self.mates[side] else signature(side, unit)
                if found is not None:
                    buckets[side][found].append(unit.number)
        new: list[tuple[int, int]] = []
        for key, us in buckets[0].items():
            vs = buckets[1].get(key, [])
            if len(us) != len(vs) or (len(us) > 1 and not several):
                continue
            wished = list(zip(us, vs, strict=True))
            if all(self.agree(u, v) for u, v in wished):
                new += wished
        for u, v in new:
            self.pair(u, v, why)
        self.spread(new)

    def spread(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Pair the neighbours of pairs, and their neighbours, as far as there is only one choice."""
        frontier = dict.fromkeys(pairs)
        fresh = set(frontier)
        while frontier:
            wishes: tuple[dict[int, set[int]], ...] = (defaultdict(set), defaultdict(set))
            for u, v in frontier:
                if (u, v) not in fresh and self._degree(u, v) > CROWDED:
                    continue
                for x, y in self._only_choices(u, v):
                    wishes[0][x].add(y)
                    wishes[1][y].add(x)
            mutual = ((x, min(ys)) for x, ys in wishes[0].items() if len(ys) == 1)
            fresh = {(x, y) for x, y in mutual if len(wishes[1][y]) == 1 and self.agree(x, y)}
            for x, y in sorted(fresh):
                self.pair(x, y, "data flow")
            frontier = dict.fromkeys(chain.from_iterable(self._around(x, y) for x, y in sorted(fresh)))

    def agree(self, u: int, v: int) -> bool:
        """Whether nothing that is known of them says that two units do different work."""
        x, y = self.sides[0][u], self.sides[1][v]
        if x.kind != y.kind or _differ(x.shape, y.shape) or _phases_differ(x, y):
            return False
        if self.strict and _modules_differ(x, y):
            return False
        if x.labels and y.labels and not set(x.labels) & set(y.labels):
            return False
        if x.names and y.names and not set(x.names) & set(y.names):
            return False
        if passes_through(x.kind) and not self._same_origin(u, v):
            return False
        return not self._takes_from_elsewhere(x, y)

    def _same_origin(self, u: int, v: int) -> bool:
        """Whether the value that both only pass on may be the same: a view of another value is another view."""
        one, other = self._origins[0][u], self._origins[1][v]
        if isinstance(one, int) and isinstance(other, int):
            return self.mates[0].get(one, other) == other and self.mates[1].get(other, one) == one
        return one is None or other is None or one == other

    def _takes_from_elsewhere(self, x: Unit, y: Unit) -> bool:
        """Whether all that both take is paired, and not one of it with the other's."""
        of_x = [self.mates[0].get(one) for one, _ in x.taken]
        of_y = [one if one in self.mates[1] else None for one, _ in y.taken]
        if not of_x or not of_y or None in of_x or None in of_y:
            return False
        if MIXED in (slot for _, slot in (*x.taken, *y.taken)):
            return not set(of_x) & set(of_y)
        return set(of_x) != set(of_y) and len(of_x) == len(of_y)

    def _degree(self, u: int, v: int) -> int:
        x, y = self.sides[0][u], self.sides[1][v]
        return max(len(x.taken), len(x.given), len(y.taken), len(y.given))

    def _around(self, u: int, v: int) -> Iterator[tuple[int, int]]:
        yield u, v
        x = self.sides[0][u]
        for one, _ in chain(x.taken, x.given):
            if one in self.mates[0]:
                yield one, self.mates[0][one]

    def _only_choices(self, u: int, v: int) -> Iterator[tuple[int, int]]:
        """The unpaired neighbours of a pair that are the only ones of their kind, slot and shape on both
        sides."""
        x, y = self.sides[0][u], self.sides[1][v]
        for of_x, of_y, takers in ((x.given, y.given, True), (x.taken, y.taken, False)):
            for exact in (True, False):
                left = self._neighbours(0, x, of_x, takers, exact)
                right = self._neighbours(1, y, of_y, takers, exact)
                done = [key for key, ones in left.items() if len(ones) == 1 == len(right.get(key, ()))]
                yield from ((left[key][0], right[key][0]) for key in done)
                if len(done) == len(left):
                    break

    def _neighbours(
        self, side: int, of: Unit, edges: Sequence[tuple[int, int]], takers: bool, exact: bool
    ) -> dict[Hashable, list[int]]:
        units, mates = self.sides[side], self.mates[side]
        found: dict[Hashable, list[int]] = defaultdict(list)
        for one, slot in edges:
            if one in mates:
                continue
            unit = units[one]
            taker = unit if takers else of
            place = 0 if taker.kind in COMMUTATIVE else slot
            key = (unit.kind, unit.first.phase, place, unit.shape) if exact else (unit.kind, unit.first.phase)
            if one not in found[key]:
                found[key].append(one)
        return found


def _origins(units: Sequence[Unit]) -> list[int | str | None]:
    """For each unit that only passes a value on, which unit made the value, or what the script calls it."""
    found: list[int | str | None] = []
    for unit in units:
        before = unit.taken[0][0] if unit.taken else None
        if before is None or not passes_through(unit.kind):
            found.append(unit.labels[0] if unit.labels else None)
        else:
            passed_on = passes_through(units[before].kind) and before < unit.number
            found.append(found[before] if passed_on else before)
    return found


def _differ(a: Sequence[int | str] | None, b: Sequence[int | str] | None) -> bool:
    """Whether both shapes are known and differ; a symbolic size equals any."""
    if a is None or b is None:
        return False
    return len(a) != len(b) or any(
        one != other and isinstance(one, int) and isinstance(other, int) for one, other in zip(a, b, strict=True)
    )


def _phases_differ(x: Unit, y: Unit) -> bool:
    return bool(x.first.phase and y.first.phase and x.first.phase != y.first.phase)


def _modules_differ(x: Unit, y: Unit) -> bool:
    modules = (x.first.node.module, y.first.node.module)
    return None not in modules and modules[0] != modules[1]
