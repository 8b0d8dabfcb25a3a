"""The losses of one run over its steps, as the tests of curves take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .loss_distance import Floats, Steps, recorded_losses


@dataclass(frozen=True, slots=True)
class LossSeries:
    """Strictly increasing steps and one loss for each, None for a step without loss."""

    steps: Sequence[int]
    losses: Sequence[float | None]

    def __post_init__(self) -> None:
        self.recorded()

    def recorded(self) -> tuple[Steps, Floats]:
        """Return the steps that have a loss, and these losses. Raises ValueError for steps out of order."""
        return recorded_losses(self.steps, self.losses)
