"""Which unit of A does the work of which unit of B, found without a guess: what is ambiguous stays unpaired.

Anchors come first: units that are alone with a signature on their side, on both sides. From pairs the matching spreads
along the edges: the only `mul` that takes the one is the only `mul` that takes the other. All of it treats A and B
alike, so that exchanging them exchanges the result; the time grows with the number of edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain

from .op_kinds import COMMUTATIVE, passes_through
from .value_flow import MIXED, Unit, ValueFlow

Pairs = dict[int, int]
Signature = Callable[[int, Unit], Hashable | None]
"""A unit of side 0 (A) or 1 (B) to what it can be told by, None when that is not known."""

CROWDED = 64
"""Units with more neighbours than this hand the matching on only while they are new."""


class Matching:
    """Pairs of units. `mates` are the pairs from A to B and from B to A, `by` says how a unit of A was found. While it
    is `strict`, units of different modules are not paired: modes seldom differ in the module of an op."""

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
        """Pair the units that are alone with their signature; with `several`, as many as many, in their order."""
        buckets: tuple[dict[Hashable, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for side, units in enumerate(self.sides):
            for unit in units:
                found = None if unit.number in self.mates[side] else signature(side, unit)
                if found is not None:
                    buckets[side][found].append(unit.number)
        # Nothing is paired before all is decided: `agree` asks the mates, and the order of units must not matter.
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
        a, b = self.sides
        frontier = dict.fromkeys(pairs)
        fresh = set(frontier)
        while frontier:
            # Each pair wishes that neighbours be paired which are the only ones of their kind, slot and shape on
            # both sides; where that leaves some over, the only ones of their kind.
            wishes: tuple[dict[int, set[int]], ...] = (defaultdict(set), defaultdict(set))
            for u, v in frontier:
                x, y = a[u], b[v]
                if (u, v) not in fresh and max(map(len, (x.taken, x.given, y.taken, y.given))) > CROWDED:
                    continue
                for of_x, of_y, takers in ((x.given, y.given, True), (x.taken, y.taken, False)):
                    for exact in (True, False):
                        left = self._neighbours(0, x, of_x, takers, exact)
                        right = self._neighbours(1, y, of_y, takers, exact)
                        done = [key for key, ones in left.items() if len(ones) == 1 == len(right.get(key, ()))]
                        for key in done:
                            wishes[0][left[key][0]].add(right[key][0])
                            wishes[1][right[key][0]].add(left[key][0])
                        if len(done) == len(left):
                            break
            # A wish is granted where nobody wishes otherwise, for either of the two.
            mutual = ((x, min(ys)) for x, ys in wishes[0].items() if len(ys) == 1)
            fresh = {(x, y) for x, y in mutual if len(wishes[1][y]) == 1 and self.agree(x, y)}
            frontier = {}
            for u, v in sorted(fresh):
                self.pair(u, v, "data flow")
            # Next are the new pairs, and the old ones beside them, which now have fewer neighbours to choose from.
            for u, v in sorted(fresh):
                frontier[u, v] = None
                for near, _ in chain(a[u].taken, a[u].given):
                    if near in self.mates[0]:
                        frontier[near, self.mates[0][near]] = None

    def agree(self, u: int, v: int) -> bool:
        """Whether nothing that is known of them says that two units do different work."""
        x, y = self.sides[0][u], self.sides[1][v]
        if x.kind != y.kind:
            return False
        if x.shape is not None and y.shape is not None:
            sizes = list(zip(x.shape, y.shape, strict=False))
            # A symbolic size equals any.
            if len(x.shape) != len(y.shape) or any(
                one != other and isinstance(one, int) and isinstance(other, int) for one, other in sizes
            ):
                return False
        # Phases and modules count only where both are known.
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
            # A view of another value is another view, whatever it looks like.
            one, other = self._origins[0][u], self._origins[1][v]
            if isinstance(one, int) and isinstance(other, int):
                if self.mates[0].get(one, other) != other or self.mates[1].get(other, one) != one:
                    return False
            elif one is not None and other is not None and one != other:
                return False
        # Where all that both take is paired, it has to be with what the other takes.
        of_x = [self.mates[0].get(near) for near, _ in x.taken]
        of_y = [near if near in self.mates[1] else None for near, _ in y.taken]
        if not of_x or not of_y or None in of_x or None in of_y:
            return True
        if MIXED in (slot for _, slot in (*x.taken, *y.taken)):
            return bool(set(of_x) & set(of_y))
        return set(of_x) == set(of_y) or len(of_x) != len(of_y)

    def _neighbours(
        self, side: int, of: Unit, edges: Sequence[tuple[int, int]], takers: bool, exact: bool
    ) -> dict[Hashable, list[int]]:
        units, mates = self.sides[side], self.mates[side]
        found: dict[Hashable, list[int]] = defaultdict(list)
        for one, slot in edges:
            if one in mates:
                continue
            unit = units[one]
            # The slot is one of the unit that takes, and says nothing where its inputs may change places.
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


# What a unit can be told by, and the order in which that is tried.
#
# The parameters that it takes and the gradients that it makes, its module, the autograd sequence number of its
# forward op, its source line, what it takes from, what it stands between.


class Signatures:
    """What units can be told by, beginning with what is told best. Without `turns` it does not matter how many
    forwards came before, which a side that recorded no forward does not know."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self.turns = True

    def _place(self, unit: Unit) -> tuple[str, str, int]:
        return unit.kind, unit.first.phase, unit.first.turn if self.turns else -1

    def named(self, _side: int, unit: Unit) -> Hashable | None:
        """By the parameters that it takes and the gradients that it makes."""
        if not unit.labels and not unit.names:
            return None
        return (*self._place(unit), unit.labels, unit.names)

    def module(self, side: int, unit: Unit) -> Hashable | None:
        return None if unit.first.node.module is None else (*self._place(unit), unit.first.node.module)

    def module_between(self, side: int, unit: Unit) -> Hashable | None:
        found = self.module(side, unit)
        return None if found is None else (found, self._between(side, unit))

    def source(self, side: int, unit: Unit) -> Hashable | None:
        return None if not unit.first.node.source else (*self._place(unit), unit.first.node.source, unit.shape)

    def sequence(self) -> Signature:
        """By the forward op whose autograd sequence number it has, where that one is paired already."""
        tied: tuple[dict[Hashable, set[Hashable]], ...] = (defaultdict(set), defaultdict(set))
        a, b = self._matching.sides
        for u, v in self._matching.mates[0].items():
            x, y = a[u].first, b[v].first
            if x.phase == "forward" and x.node.sequence is not None and y.node.sequence is not None:
                tied[0][x.turn, x.node.sequence].add((y.turn, y.node.sequence))
                tied[1][y.turn, y.node.sequence].add((x.turn, x.node.sequence))

        def of(side: int, unit: Unit) -> Hashable | None:
            own = (unit.first.turn, unit.first.node.sequence)
            # Autograd gives a backward op the number of its forward op. A number that is tied to several of the other
            # side (a forward in several ops) tells nothing.
            others = tied[side].get(own, ())
            if unit.first.phase == "forward" or len(others) != 1:
                return None
            (other,) = others
            back = tied[1 - side][other]
            pair = (own, other) if side == 0 else (other, own)
            return (*self._place(unit), pair) if len(back) == 1 else None

        return of

    def neighbours(self, side: int, unit: Unit) -> Hashable | None:
        """By the units that it takes from, all of them paired."""
        mates = self._matching.mates[side]
        taken = [one for one, _ in unit.taken]
        if not taken or any(one not in mates for one in taken):
            return None
        return (
            *self._place(unit),
            tuple(sorted(one if side == 0 else mates[one] for one in taken)),
            unit.labels,
        )

    def kind(self, _side: int, unit: Unit) -> Hashable | None:
        return (*self._place(unit), unit.shape)

    def kind_between(self, side: int, unit: Unit) -> Hashable | None:
        return (*self._place(unit), self._between(side, unit))

    def kind_anywhere(self, _side: int, unit: Unit) -> Hashable | None:
        return (unit.kind, unit.first.phase)

    def _between(self, side: int, unit: Unit) -> Hashable:
        """What it stands between in its phase; which ops of another phase take its value is the partitioner's."""
        units = self._matching.sides[side]

        def kinds(edges: Sequence[tuple[int, int]]) -> Hashable:
            near = (units[one] for one, _ in edges)
            return tuple(sorted({one.kind for one in near if one.first.phase == unit.first.phase}))

        return kinds(unit.taken), kinds(unit.given), unit.shape


def match(matching: Matching) -> None:
    """Pair what can be paired: what is told best first, what is alone before what comes several times."""
    tell = Signatures(matching)
    rounds: list[tuple[Callable[[], Signature], str]] = [
        (lambda: tell.named, "data flow"),
        (lambda: tell.module_between, "module"),
        (lambda: tell.module, "module"),
        (tell.sequence, "sequence"),
        (lambda: tell.source, "source"),
        (lambda: tell.neighbours, "data flow"),
        (lambda: tell.kind_between, "kind"),
    ]
    # Modules, then turns, are let go only when nothing more is found with them: what is told best comes first.
    for strict, turns in ((True, True), (True, False), (False, False)):
        matching.strict, tell.turns = strict, turns
        for several in (False, True):
            for signature, why in rounds:
                matching.anchor(signature(), why, several=several)
    matching.anchor(tell.kind, "kind")
    matching.anchor(tell.kind_anywhere, "kind")
