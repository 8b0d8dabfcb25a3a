"""Looking for what matters among many, with few questions: in sets, by halves, and along a row.

    >>> fails = lambda tried: 3 in tried or {5, 6} <= set(tried)
    >>> bisect_all(range(8), fails), ddmin([5, 6, 7], fails)  # 3 acts alone, 5 and 6 only together
    ([3], [5, 6])
    >>> carriers(range(8), lambda sets: [float(3 in one) for one in sets]).carriers
    (Carrier(parts=(3,), alone=1.0, without=0.0),)
    >>> between([(0, False), (9, True)], 4)  # to ask next for the first that fails
    [1, 3, 6, 8]

The ops of a step are searched by the first two, the parts of a model by the third, and the step in which a
drift begins by the last. What a question costs differs by orders: a hybrid of two tapes takes milliseconds,
the others a run of the script. So the first two ask one set at a time, and the other two many at once, which
run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Fails = Callable[[Sequence[Item]], bool]


def bisect_all(items: Sequence[Item], fails: Fails[Item]) -> list[Item]:
    """Every item that fails alone, in their order, where a set fails if one of its items does (BisectAll, as
    FLiT does: HPDC 2019).

    Raises nothing of its own; `fails` is called about log2(n) + 2 times for each item that is found. Where a
    set fails and neither half of it does the halves are searched one by one, which takes up to twice as
    many.
    """
    left, found = list(items), []
    while left and fails(left):
        one, passed = _first(left, fails)
        if one is None:
            found += _halves(left, fails)
            break
        found.append(one)
        left = [item for item in left if item != one and item not in passed]
    return [item for item in items if item in found]


def _first(items: Sequence[Item], fails: Fails[Item]) -> tuple[Item | None, list[Item]]:
    """An item of a failing set that fails alone, None where that is none, and the items that were seen to
    pass."""
    group, passed = list(items), []
    while len(group) > 1:
        half = group[: len(group) // 2]
        if fails(half):
            group = half
        else:
            passed += half
            group = group[len(half) :]
    return (group[0] if fails(group) else None), passed


def _halves(items: Sequence[Item], fails: Fails[Item]) -> list[Item]:
    """The items of a failing set that fail alone, by looking into every half that fails."""
    if len(items) == 1:
        return list(items)
    half = len(items) // 2
    parts = items[:half], items[half:]
    return [item for part in parts if fails(part) for item in _halves(part, fails)]


def ddmin(items: Sequence[Item], fails: Fails[Item]) -> list[Item]:
    """A subset that fails and of which no single item can be left out; `items` as a whole must fail.

    Zeller and Hildebrandt, IEEE TSE 28(2), 2002.
    """
    kept, parts = list(items), 2
    while len(kept) >= 2:
        size = max(1, len(kept) // parts)
        chunks = [kept[start : start + size] for start in range(0, len(kept), size)]
        smaller = next((chunk for chunk in chunks if fails(chunk)), None)
        if smaller is not None:
            kept, parts = list(smaller), 2
            continue
        without = [[one for one in kept if one not in chunk] for chunk in chunks]
        smaller = next((rest for rest in without if rest and fails(rest)), None)
        if smaller is not None:
            kept, parts = list(smaller), max(2, parts - 1)
        elif parts >= len(kept):
            break
        else:
            parts = min(len(kept), parts * 2)
    return kept


Drifts = Callable[[Sequence[frozenset[Item]]], Sequence[float]]
"""How large the drift is with only these items, for each of some sets."""

MOST_CARRIERS = 5

CARRIED = 0.5
"""Items carry a drift that is at least this fraction of the whole's; they are looked for until what remains
without them is less."""


@dataclass(frozen=True, slots=True)
class Carrier(Generic[Item]):
    """Items that carry drift: `alone` is the drift with only these, `without` that with all others that are
    no carriers found before. More than one where each half of them is (nearly) without drift by itself."""

    parts: tuple[Item, ...]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class Bisection(Generic[Item]):
    """`whole` is the drift with all items, `asked` how many sets were asked of for the answer."""

    whole: float
    carriers: tuple[Carrier[Item], ...]
    asked: int

    @property
    def remaining(self) -> float:
        """The drift without the carriers."""
        return self.carriers[-1].without if self.carriers else self.whole


def carriers(
    items: Sequence[Item], drifts: Drifts[Item], enough: float = math.inf, least: float = 0.0
) -> Bisection[Item]:
    """Find the items that carry the drift, the largest part first; neighbours in `items` are kept together.

    It goes on while what is left is a large part of the whole, or more than `enough`; a whole below `least`
    is not looked into. Each carrier takes about 2 log2(n) questions of n items.
    """
    asked = _Asked(drifts)
    [whole] = asked.of(items)
    left, found = list(items) if whole >= least else [], list[Carrier[Item]]()
    remaining = whole
    while left and (remaining > enough or remaining >= CARRIED * whole > 0) and len(found) < MOST_CARRIERS:
        group, alone = _narrowed(left, remaining, asked)
        left = [one for one in left if one not in group]
        [remaining] = asked.of(left)
        found.append(Carrier(tuple(group), alone, remaining))
    return Bisection(whole, tuple(found), asked.count)


def _narrowed(items: Sequence[Item], drift: float, asked: _Asked[Item]) -> tuple[Sequence[Item], float]:
    """Halve the items as long as one half carries the drift of both; gives what is left, and its drift."""
    while len(items) > 1:
        middle = len(items) // 2
        halves = (items[:middle], items[middle:])
        half, largest = max(zip(halves, asked.of(*halves), strict=True), key=lambda one: one[1])
        if largest < CARRIED * drift:
            break
        items, drift = half, largest
    return items, drift


class _Asked(Generic[Item]):
    """Asks once of each set; without any item there is no drift."""

    def __init__(self, drifts: Drifts[Item]) -> None:
        self._drifts = drifts
        self._known: dict[frozenset[Item], float] = {frozenset(): 0.0}

    @property
    def count(self) -> int:
        return len(self._known) - 1

    def of(self, *sets: Sequence[Item]) -> list[float]:
        chosen = [frozenset(items) for items in sets]
        unknown = [one for one in chosen if one not in self._known]
        self._known.update(zip(unknown, self._drifts(unknown) if unknown else (), strict=True))
        return [self._known[one] for one in chosen]


def between(known: Iterable[tuple[int, bool]], most: int) -> list[int]:
    """At most so many places to ask next for the first that fails, evenly spaced between the last that is
    known to pass before a failing one and that one; none where they are neighbours, nothing fails, or
    nothing passes before."""
    before = -1
    for place, failed in known:
        if failed:
            gap = list(range(before + 1, place)) if before >= 0 else []
            return [gap[one] for one in evenly(len(gap), min(len(gap), most))]
        before = place
    return []


def evenly(count: int, parts: int) -> list[int]:
    """`parts` places of `count`, evenly spaced, the first and the last among them."""
    if parts < 2 or not count:
        return [0] if parts and count else []
    return [round(part * (count - 1) / (parts - 1)) for part in range(parts)]
