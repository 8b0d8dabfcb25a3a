"""From differences to causes: what makes the drift come, and what makes it go.

A test is one hybrid of the two tapes. `swap in` executes side a with one cause from side b; `swap out` executes side b with that
cause from side a. Each cause is tested alone while there are few; many are searched by halves (BisectAll, as FLiT does: HPDC 2019),
which finds each that acts alone in about log2(n) + 3 tests. What then remains acts only together, and is shrunk by ddmin
(Zeller and Hildebrandt, IEEE TSE 28(2), 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..tape.ensemble import in_words
from .hybrid import Mixture, Pair, execute
from .hybrid_scores import Drift, Scorer
from .swap_sites import Cause

Item = TypeVar("Item")

FEW = 24
"""Up to so many causes are each tested alone; beyond, groups are tested first."""


class Infeasible(Exception):
    """A hybrid that cannot be executed, in words."""


@dataclass(slots=True)
class Laboratory:
    """Executes hybrids and counts them; the same hybrid is executed once."""

    pair: Pair
    scorer: Scorer
    tests: int = 0
    _known: dict[Mixture, Drift | Infeasible] = field(default_factory=dict)

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        """Side a with these causes from side b. Raises Infeasible."""
        return self._drift(_mixture("a", causes))

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        """Side b with these causes from side a. Raises Infeasible."""
        return self._drift(_mixture("b", causes))

    def _drift(self, mixture: Mixture) -> Drift:
        if mixture not in self._known:
            self.tests += 1
            try:
                self._known[mixture] = self.scorer.drift(execute(self.pair, mixture))
            except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not its own
                self._known[mixture] = Infeasible(in_words(error))
        known = self._known[mixture]
        if isinstance(known, Infeasible):
            raise known
        return known


def _mixture(base: str, causes: Sequence[Cause]) -> Mixture:
    return Mixture(
        "a" if base == "a" else "b",
        frozenset(block for cause in causes for block in cause.blocks),
        frozenset(value for cause in causes for value in cause.inputs),
    )


def bisect_all(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Every item that fails alone, in their order, where a set fails if one of its items does.

    Raises nothing of its own; `fails` is called about log2(n) + 2 times for each item that is found. Where a set fails and
    neither half of it does the halves are searched one by one, which takes up to twice as many.
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


def _first(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> tuple[Item | None, list[Item]]:
    """An item of a failing set that fails alone, None where that is none, and the items that were seen to pass."""
    group, passed = list(items), []
    while len(group) > 1:
        half = group[: len(group) // 2]
        if fails(half):
            group = half
        else:
            passed += half
            group = group[len(half) :]
    return (group[0] if fails(group) else None), passed


def _halves(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """The items of a failing set that fail alone, by looking into every half that fails."""
    if len(items) == 1:
        return list(items)
    half = len(items) // 2
    parts = items[:half], items[half:]
    return [item for part in parts if fails(part) for item in _halves(part, fails)]


def ddmin(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset that fails and of which no single item can be left out; `items` as a whole must fail."""
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
