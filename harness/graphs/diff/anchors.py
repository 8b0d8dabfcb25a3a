"""What a unit can be told by, and the order in which that is tried.

The parameters that it takes and the gradients that it makes, its module, the autograd sequence number of its
forward op, its source line, what it takes from, what it stands between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from .matching import Matching, Signature
from .value_flow import Unit


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
        """What it stands between in its phase; which ops of another phase take its value is the
        partitioner's."""
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
    for strict, turns in ((True, True), (True, False), (False, False)):
        matching.strict, tell.turns = strict, turns
        for several in (False, True):
            for signature, why in rounds:
                matching.anchor(signature(), why, several=several)
    matching.anchor(tell.kind, "kind")
    matching.anchor(tell.kind_anywhere, "kind")
