"""Pair units of A with units of B that do the same work, without guesses: ambiguous units stay unpaired.

Anchors come first: units whose signature is unique on both sides. From these pairs the matching spreads along the
edges: if only one `mul` reads unit u, and only one `mul` reads u's mate v, the two `mul` are paired. The method treats
A and B alike, so exchanging them exchanges the result. The time grows with the number of edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain

from .op_kinds import COMMUTATIVE, passes_through
from .value_flow import MIXED, Unit, ValueFlow

Pairs = dict[int, int]
Signature = Callable[[int, Unit], Hashable | None]
"""Returns the identity of a unit of side 0 (A) or 1 (B), or None if it is not known."""

CROWDED = 64
"""A unit with more neighbours than this spreads the matching only in the round after it was paired."""


class Matching:
    """Pairs of units.

    mates: the pairs from A to B, and from B to A
    by: the reason for each pair, keyed by its unit of A
    strict: while set, units of different modules are not paired; modes seldom differ in the module of an op
    """

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
        """Pair the units whose signature is unique on both sides.

        With `several`, also pair units that share a signature, in order, if both sides have equally many.
        """
        buckets: tuple[dict[Hashable, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for side, units in enumerate(self.sides):
            for unit in units:
                own_signature = None if unit.number in self.mates[side] else signature(side, unit)
                if own_signature is not None:
                    buckets[side][own_signature].append(unit.number)
        # All pairs are chosen before any is recorded: `agree` reads the mates, and the order of units must not matter.
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
        """Pair the neighbours of pairs, then the neighbours of the new pairs, as long as there is only one choice."""
        a, b = self.sides
        frontier = dict.fromkeys(pairs)
        fresh = set(frontier)
        while frontier:
            # Each pair proposes pairs of its neighbours: those whose kind, slot and shape are unique on both sides. If
            # some neighbours are left over, it also proposes those whose kind is unique.
            wishes: tuple[dict[int, set[int]], ...] = (defaultdict(set), defaultdict(set))
            for u, v in frontier:
                x, y = a[u], b[v]
                if (u, v) not in fresh and max(map(len, (x.reads, x.readers, y.reads, y.readers))) > CROWDED:
                    continue
                for of_x, of_y, takers in ((x.readers, y.readers, True), (x.reads, y.reads, False)):
                    for exact in (True, False):
                        left = self._neighbours(0, x, of_x, takers, exact)
                        right = self._neighbours(1, y, of_y, takers, exact)
                        done = [key for key, numbers in left.items() if len(numbers) == 1 == len(right.get(key, ()))]
                        for key in done:
                            wishes[0][left[key][0]].add(right[key][0])
                            wishes[1][right[key][0]].add(left[key][0])
                        if len(done) == len(left):
                            break
            # A proposal is accepted if no other proposal for either of its two units contradicts it.
            mutual = ((x, min(ys)) for x, ys in wishes[0].items() if len(ys) == 1)
            fresh = {(x, y) for x, y in mutual if len(wishes[1][y]) == 1 and self.agree(x, y)}
            frontier = {}
            for u, v in sorted(fresh):
                self.pair(u, v, "data flow")
            # The next round begins at the new pairs, and at the old pairs next to them, which now have fewer
            # candidates.
            for u, v in sorted(fresh):
                frontier[u, v] = None
                for near, _ in chain(a[u].reads, a[u].readers):
                    if near in self.mates[0]:
                        frontier[near, self.mates[0][near]] = None

    def agree(self, u: int, v: int) -> bool:
        """Check that no known property of the two units rules out that they do the same work."""
        x, y = self.sides[0][u], self.sides[1][v]
        if x.kind != y.kind:
            return False
        if x.shape is not None and y.shape is not None:
            sizes = list(zip(x.shape, y.shape, strict=False))
            # A symbolic size matches any size.
            if len(x.shape) != len(y.shape) or any(
                size_a != size_b and isinstance(size_a, int) and isinstance(size_b, int) for size_a, size_b in sizes
            ):
                return False
        # Phases and modules count only if they are known on both sides.
        if x.first.phase and y.first.phase and x.first.phase != y.first.phase:
            return False
        modules = (x.first.node.module, y.first.node.module)
        if self.strict and None not in modules and modules[0] != modules[1]:
            return False
        if x.labels and y.labels and not set(x.labels) & set(y.labels):
            return False
        if x.names and y.names and not set(x.names) & set(y.names):
            return False
        if passes_through(x.kind):
            # Views of different values are different views, even if they look the same.
            origin_a, origin_b = self._origins[0][u], self._origins[1][v]
            if isinstance(origin_a, int) and isinstance(origin_b, int):
                if (
                    self.mates[0].get(origin_a, origin_b) != origin_b
                    or self.mates[1].get(origin_b, origin_a) != origin_a
                ):
                    return False
            elif origin_a is not None and origin_b is not None and origin_a != origin_b:
                return False
        # If all inputs of both units are paired, the inputs of one unit must be paired with those of the other.
        of_x = [self.mates[0].get(near) for near, _ in x.reads]
        of_y = [near if near in self.mates[1] else None for near, _ in y.reads]
        if not of_x or not of_y or None in of_x or None in of_y:
            return True
        if MIXED in (slot for _, slot in (*x.reads, *y.reads)):
            return bool(set(of_x) & set(of_y))
        return set(of_x) == set(of_y) or len(of_x) != len(of_y)

    def _neighbours(
        self, side: int, of: Unit, edges: Sequence[tuple[int, int]], takers: bool, exact: bool
    ) -> dict[Hashable, list[int]]:
        units, mates = self.sides[side], self.mates[side]
        neighbours: dict[Hashable, list[int]] = defaultdict(list)
        for number, slot in edges:
            if number in mates:
                continue
            unit = units[number]
            # The slot belongs to the reading unit, and is irrelevant if that unit's inputs may be exchanged.
            taker = unit if takers else of
            place = 0 if taker.kind in COMMUTATIVE else slot
            key = (unit.kind, unit.first.phase, place, unit.shape) if exact else (unit.kind, unit.first.phase)
            if number not in neighbours[key]:
                neighbours[key].append(number)
        return neighbours


def _origins(units: Sequence[Unit]) -> list[int | str | None]:
    """Return, for each unit that only passes a value on, the origin of the value.

    The origin is the unit that made the value, or the value's name in the script.
    """
    origins: list[int | str | None] = []
    for unit in units:
        before = unit.reads[0][0] if unit.reads else None
        if before is None or not passes_through(unit.kind):
            origins.append(unit.labels[0] if unit.labels else None)
        else:
            passed_on = passes_through(units[before].kind) and before < unit.number
            origins.append(origins[before] if passed_on else before)
    return origins


# The properties that identify a unit, in the order in which they are tried: the parameters that it reads and the
# gradients that it computes, its module, the autograd sequence number of its forward op, its source line, the units
# that it reads, its neighbours on both sides.


class Signatures:
    """Properties that identify units, the most reliable first.

    Without `turns` the number of earlier forwards is ignored: a side that recorded no forward does not know this
    number.
    """

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self.turns = True

    def _place(self, unit: Unit) -> tuple[str, str, int]:
        return unit.kind, unit.first.phase, unit.first.turn if self.turns else -1

    def named(self, _side: int, unit: Unit) -> Hashable | None:
        """Identify a unit by the parameters that it reads and the gradients that it computes."""
        if not unit.labels and not unit.names:
            return None
        return (*self._place(unit), unit.labels, unit.names)

    def module(self, side: int, unit: Unit) -> Hashable | None:
        return None if unit.first.node.module is None else (*self._place(unit), unit.first.node.module)

    def module_between(self, side: int, unit: Unit) -> Hashable | None:
        module_key = self.module(side, unit)
        return None if module_key is None else (module_key, self._between(side, unit))

    def source(self, side: int, unit: Unit) -> Hashable | None:
        return None if not unit.first.node.source else (*self._place(unit), unit.first.node.source, unit.shape)

    def sequence(self) -> Signature:
        """Identify a unit by the forward op that has the unit's autograd sequence number, if this op is paired."""
        tied: tuple[dict[Hashable, set[Hashable]], ...] = (defaultdict(set), defaultdict(set))
        a, b = self._matching.sides
        for u, v in self._matching.mates[0].items():
            x, y = a[u].first, b[v].first
            if x.phase == "forward" and x.node.sequence is not None and y.node.sequence is not None:
                tied[0][x.turn, x.node.sequence].add((y.turn, y.node.sequence))
                tied[1][y.turn, y.node.sequence].add((x.turn, x.node.sequence))

        def of(side: int, unit: Unit) -> Hashable | None:
            own = (unit.first.turn, unit.first.node.sequence)
            # A backward op has the autograd sequence number of its forward op. A number that corresponds to several
            # numbers of the other side (one forward op against several) identifies nothing.
            tied_numbers = tied[side].get(own, ())
            if unit.first.phase == "forward" or len(tied_numbers) != 1:
                return None
            (tied_number,) = tied_numbers
            back = tied[1 - side][tied_number]
            pair = (own, tied_number) if side == 0 else (tied_number, own)
            return (*self._place(unit), pair) if len(back) == 1 else None

        return of

    def neighbours(self, side: int, unit: Unit) -> Hashable | None:
        """Identify a unit by the units that it reads, if all of them are paired."""
        mates = self._matching.mates[side]
        sources = [source for source, _ in unit.reads]
        if not sources or any(source not in mates for source in sources):
            return None
        return (
            *self._place(unit),
            tuple(sorted(source if side == 0 else mates[source] for source in sources)),
            unit.labels,
        )

    def kind(self, _side: int, unit: Unit) -> Hashable | None:
        return (*self._place(unit), unit.shape)

    def kind_between(self, side: int, unit: Unit) -> Hashable | None:
        return (*self._place(unit), self._between(side, unit))

    def kind_anywhere(self, _side: int, unit: Unit) -> Hashable | None:
        return (unit.kind, unit.first.phase)

    def _between(self, side: int, unit: Unit) -> Hashable:
        """Return the kinds of the units that a unit reads, the kinds of the units that read it, and its shape.

        Units in other phases are left out, since the partitioner chooses the readers in other phases.
        """
        units = self._matching.sides[side]

        def kinds(edges: Sequence[tuple[int, int]]) -> Hashable:
            near = (units[number] for number, _ in edges)
            return tuple(sorted({neighbour.kind for neighbour in near if neighbour.first.phase == unit.first.phase}))

        return kinds(unit.reads), kinds(unit.readers), unit.shape


def match(matching: Matching) -> None:
    """Pair units by the most reliable properties first, and unique units before units that share a property."""
    signatures = Signatures(matching)
    rounds: list[tuple[Callable[[], Signature], str]] = [
        (lambda: signatures.named, "data flow"),
        (lambda: signatures.module_between, "module"),
        (lambda: signatures.module, "module"),
        (signatures.sequence, "sequence"),
        (lambda: signatures.source, "source"),
        (lambda: signatures.neighbours, "data flow"),
        (lambda: signatures.kind_between, "kind"),
    ]
    # Turns, and then modules, are ignored only when no more pairs are found with them.
    for strict, turns in ((True, True), (True, False), (False, False)):
        matching.strict, signatures.turns = strict, turns
        for several in (False, True):
            for signature, why in rounds:
                matching.anchor(signature(), why, several=several)
    matching.anchor(signatures.kind, "kind")
    matching.anchor(signatures.kind_anywhere, "kind")
