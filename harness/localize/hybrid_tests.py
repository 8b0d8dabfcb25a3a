"""Testing causes: what makes the drift come, and what makes it go.

A test is one hybrid of the two tapes. `swap in` executes side a with one cause from side b; `swap out`
executes side b with that cause from side a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..tape.ensemble import in_words
from .hybrid import Mixture, TapePair, execute
from .hybrid_scores import Drift, Scorer
from .swap_sites import Cause


class Infeasible(Exception):
    """A hybrid that cannot be executed, in words."""


@dataclass(slots=True)
class HybridTests:
    """Executes hybrids and counts them; the same hybrid is executed once."""

    pair: TapePair
    scorer: Scorer
    count: int = 0
    _known: dict[Mixture, Drift | Infeasible] = field(default_factory=dict)

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        """Side a with these causes from side b. Raises Infeasible."""
        return self._drift(_mixture("a", causes))

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        """Side b with these causes from side a. Raises Infeasible."""
        return self._drift(_mixture("b", causes))

    def _drift(self, mixture: Mixture) -> Drift:
        if mixture not in self._known:
            self.count += 1
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
