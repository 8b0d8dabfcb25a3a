"""Which operators carry a module's drift: found by leaving ever smaller parts of it on the backend, the rest on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Part = tuple[int, int]
"""An operator of a module with its gradient: the number of the captured graph, and that of the call in it."""


class Call(NamedTuple):
    """What a part is: the operator as it was written, its line, and the path of the module that calls it (the outermost is "")."""

    operator: str
    line: str
    module: str


Drifts = Callable[[Sequence[frozenset[Part]]], Sequence[float]]
"""How far the module is from itself unpartitioned when only these operators are on the backend, for each of some sets."""

MOST_CARRIERS = 5

CARRIED = 0.5
"""A part carries a drift that is at least this fraction of the whole's; operators are looked for until what remains without
them is less."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """Operators that carry drift: `alone` is the drift with only these on the backend, `without` that with all others that are
    no carriers found before. More than one where each half of them is (nearly) without drift by itself."""

    parts: tuple[Part, ...]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class Bisection:
    """`whole` is the drift with everything on the backend, `asked` how many partitions were executed for the answer."""

    whole: float
    carriers: tuple[Carrier, ...]
    asked: int

    @property
    def remaining(self) -> float:
        """The drift without the carriers."""
        return self.carriers[-1].without if self.carriers else self.whole


def bisect(parts: Sequence[Part], drifts: Drifts, enough: float = math.inf, least: float = 0.0) -> Bisection:
    """Find the operators that carry the drift, the largest part first; `parts` are in the order of execution.

    It goes on while what is left is a large part of the whole, or more than `enough`; a whole below `least` is not looked into.
    Each carrier takes about 2 log2(n) partitions of n operators.
    """
    asked = _Asked(drifts)
    [whole] = asked.of(parts)
    left, carriers = list(parts) if whole >= least else [], list[Carrier]()
    remaining = whole
    while left and (remaining > enough or remaining >= CARRIED * whole > 0) and len(carriers) < MOST_CARRIERS:
        found, alone = _narrowed(left, remaining, asked)
        left = [one for one in left if one not in found]
        [remaining] = asked.of(left)
        carriers.append(Carrier(tuple(found), alone, remaining))
    return Bisection(whole, tuple(carriers), asked.count)


def _narrowed(parts: Sequence[Part], drift: float, asked: _Asked) -> tuple[Sequence[Part], float]:
    """Halve the parts as long as one half carries the drift of both; gives what is left, and its drift."""
    while len(parts) > 1:
        middle = len(parts) // 2
        halves = (parts[:middle], parts[middle:])
        half, largest = max(zip(halves, asked.of(*halves), strict=True), key=lambda one: one[1])
        if largest < CARRIED * drift:
            break
        parts, drift = half, largest
    return parts, drift


class _Asked:
    """Asks once of each set of operators; with nothing on the backend there is no drift."""

    def __init__(self, drifts: Drifts) -> None:
        self._drifts = drifts
        self._known: dict[frozenset[Part], float] = {frozenset(): 0.0}

    @property
    def count(self) -> int:
        return len(self._known) - 1

    def of(self, *sets: Sequence[Part]) -> list[float]:
        chosen = [frozenset(parts) for parts in sets]
        unknown = [one for one in chosen if one not in self._known]
        self._known.update(zip(unknown, self._drifts(unknown) if unknown else (), strict=True))
        return [self._known[one] for one in chosen]
