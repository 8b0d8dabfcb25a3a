"""Searches for the few items that matter among many, with few tests: in sets, by halving, and along a sequence.

    >>> fails = lambda tried: 3 in tried or {5, 6} <= set(tried)
    >>> bisect_all(range(8), fails), ddmin([5, 6, 7], fails)  # 3 acts alone, 5 and 6 only together
    ([3], [5, 6])
    >>> carriers(range(8), lambda sets: [float(3 in items) for items in sets]).carriers
    (Carrier(parts=(3,), alone=1.0, without=0.0),)
    >>> between([(0, False), (9, True)], 4)  # the places to test next for the first that fails
    [1, 3, 6, 8]
    >>> first_failing(9, lambda place: None if place == 4 else place > 4)  # place 4 cannot be tested
    (3, 5)

`bisect_all` and `ddmin` search the ops of a step, `carriers` the parts of a model, `between` the step in which a drift
begins, and `first_failing` the versions of a script. The costs of their tests differ by orders of magnitude: a hybrid
of two tapes takes milliseconds, any other test a run of the script. So the first two functions test one set at a time,
and `carriers` and `between` test several sets or steps in parallel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Fails = Callable[[Sequence[Item]], bool]


def bisect_all(items: Sequence[Item], fails: Fails[Item]) -> list[Item]:
    """Return every item that fails alone, in order, provided that a set fails whenever one of its items does.

    The algorithm is BisectAll of FLiT (HPDC 2019). This function raises no errors of its own, and calls `fails` about
    log2(n) + 2 times for each failing item. If a set fails but the search finds no item that fails alone, every half
    that fails is searched, which takes up to twice as many calls.
    """
    candidates, alone = list(items), []
    while candidates and fails(candidates):
        culprit, passed = _first(candidates, fails)
        if culprit is None:
            alone += _halves(candidates, fails)
            break
        alone.append(culprit)
        candidates = [item for item in candidates if item != culprit and item not in passed]
    return [item for item in items if item in alone]


def _first(items: Sequence[Item], fails: Fails[Item]) -> tuple[Item | None, list[Item]]:
    """Halve a failing set. Return the item found that fails alone, None if none is found, and the items that passed."""
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
    """Return the items of a failing set that fail alone, found by searching every half that fails."""
    if len(items) == 1:
        return list(items)
    half = len(items) // 2
    parts = items[:half], items[half:]
    return [item for part in parts if fails(part) for item in _halves(part, fails)]


def ddmin(items: Sequence[Item], fails: Fails[Item]) -> list[Item]:
    """Return a subset that fails, but no longer does if any single item is removed. `items` as a whole must fail.

    The algorithm is from Zeller and Hildebrandt, IEEE TSE 28(2), 2002.
    """
    failing, parts = list(items), 2
    while len(failing) >= 2:
        size = max(1, len(failing) // parts)
        chunks = [failing[start : start + size] for start in range(0, len(failing), size)]
        smaller = next((chunk for chunk in chunks if fails(chunk)), None)
        if smaller is not None:
            failing, parts = list(smaller), 2
            continue
        without = [[item for item in failing if item not in chunk] for chunk in chunks]
        smaller = next((complement for complement in without if complement and fails(complement)), None)
        if smaller is not None:
            failing, parts = list(smaller), max(2, parts - 1)
        elif parts >= len(failing):
            break
        else:
            parts = min(len(failing), parts * 2)
    return failing


Drifts = Callable[[Sequence[frozenset[Item]]], Sequence[float]]
"""A function that returns, for each of several sets, the drift with only the items of the set."""

MOST_CARRIERS = 5

CARRIED = 0.5
"""Items carry a drift if their own drift is at least this fraction of it. The search ends when less than this fraction
of the whole drift remains."""


@dataclass(frozen=True, slots=True)
class Carrier(Generic[Item]):
    """Items that carry drift.

    parts: the items; several if neither half of them carries their drift by itself
    alone: the drift with only these items
    without: the drift without these items and without the carriers that were found earlier
    """

    parts: tuple[Item, ...]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class Bisection(Generic[Item]):
    """The result of a search for carriers: `whole` is the drift with all items, `count` the number of tested sets."""

    whole: float
    carriers: tuple[Carrier[Item], ...]
    count: int

    @property
    def remaining(self) -> float:
        """The drift without the carriers."""
        return self.carriers[-1].without if self.carriers else self.whole


def carriers(
    items: Sequence[Item], drifts: Drifts[Item], enough: float = math.inf, least: float = 0.0
) -> Bisection[Item]:
    """Find the items that carry the drift, those with the largest drift first. Neighbours in `items` stay together.

    The search continues while the remaining drift is a large part of the whole drift, or more than `enough`. If the
    whole drift is below `least`, nothing is searched. Each carrier takes about 2 log2(n) tests for n items.
    """
    measurements = _Measurements(drifts)
    [total] = measurements.of(items)
    candidates, chosen = list(items) if total >= least else [], list[Carrier[Item]]()
    remaining = total
    while candidates and (remaining > enough or remaining >= CARRIED * total > 0) and len(chosen) < MOST_CARRIERS:
        group, alone = _narrowed(candidates, remaining, measurements)
        candidates = [item for item in candidates if item not in group]
        [remaining] = measurements.of(candidates)
        chosen.append(Carrier(tuple(group), alone, remaining))
    return Bisection(total, tuple(chosen), measurements.count)


def _narrowed(items: Sequence[Item], drift: float, measurements: _Measurements[Item]) -> tuple[Sequence[Item], float]:
    """Halve the items as long as one half carries the drift of both. Return the remaining items and their drift."""
    while len(items) > 1:
        middle = len(items) // 2
        halves = (items[:middle], items[middle:])
        half, largest = max(zip(halves, measurements.of(*halves), strict=True), key=lambda pair: pair[1])
        if largest < CARRIED * drift:
            break
        items, drift = half, largest
    return items, drift


class _Measurements(Generic[Item]):
    """Measures each set only once. The empty set has no drift."""

    def __init__(self, drifts: Drifts[Item]) -> None:
        self._drifts = drifts
        self._measured: dict[frozenset[Item], float] = {frozenset(): 0.0}

    @property
    def count(self) -> int:
        return len(self._measured) - 1

    def of(self, *sets: Sequence[Item]) -> list[float]:
        chosen = [frozenset(items) for items in sets]
        unknown = [subset for subset in chosen if subset not in self._measured]
        self._measured.update(zip(unknown, self._drifts(unknown) if unknown else (), strict=True))
        return [self._measured[subset] for subset in chosen]


def between(results: Iterable[tuple[int, bool]], most: int) -> list[int]:
    """Return at most `most` places to test next, in a search for the first place that fails.

    They are evenly spaced between the first failing place in `results` and the passing place before it. There are none
    if the two places are neighbours, if no place fails, or if no place before the failing one passes.
    """
    before = -1
    for place, failed in results:
        if failed:
            gap = list(range(before + 1, place)) if before >= 0 else []
            return [gap[index] for index in evenly(len(gap), min(len(gap), most))]
        before = place
    return []


def evenly(count: int, parts: int) -> list[int]:
    """Return `parts` indices below `count`. They are evenly spaced, from the first to the last."""
    if parts < 2 or not count:
        return [0] if parts and count else []
    return [round(part * (count - 1) / (parts - 1)) for part in range(parts)]


def first_failing(count: int, fails: Callable[[int], bool | None]) -> tuple[int, int]:
    """Return the last place that passes and the first one that fails, of the places 0, which passes, to `count` - 1,
    which fails.

    `fails` returns None for a place that cannot be tested. If the two places are not neighbours, none of those between
    them can be tested. Each place is tested at most once; without places that cannot be tested, about log2(count) are.
    """
    passing, failing = 0, count - 1
    untestable = set[int]()
    while left := [place for place in range(passing + 1, failing) if place not in untestable]:
        place = left[len(left) // 2]
        outcome = fails(place)
        if outcome is None:
            untestable.add(place)
        elif outcome:
            failing = place
        else:
            passing = place
    return passing, failing
