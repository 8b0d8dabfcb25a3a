"""Distance between the losses of two runs, step by step.

    absolute = |a - b|        relative = |a - b| / |a|        (a is the reference)

Equal values, two NaNs and two equal infinities are 0 apart. A NaN or an infinity that the other side does not share is
infinitely far away, absolutely and relatively. Relative to a zero, 0 / 0 = 0 and x / 0 = inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LossDrift:
    """The drift between the losses of a reference and of another run, over the steps that both have.

    Everything but `common_steps` is None if there is no common step. `first_differing_step` is also None if every pair
    of losses has equal bits (all NaNs count as equal, -0.0 and 0.0 do not). The step of a maximum is the first step at
    which the maximum is reached.
    """

    common_steps: int
    first_differing_step: int | None = None
    max_absolute: float | None = None
    max_absolute_step: int | None = None
    max_relative: float | None = None
    max_relative_step: int | None = None
    final_step: int | None = None
    final_absolute: float | None = None
    final_relative: float | None = None


def loss_drift(
    steps_a: Sequence[int], losses_a: Sequence[float | None], steps_b: Sequence[int], losses_b: Sequence[float | None]
) -> LossDrift:
    """Compare the losses of run b with those of the reference a at the steps where both have a loss.

    steps_a, steps_b: strictly increasing step numbers.
    losses_a, losses_b: one loss for each step; None for a step without a loss, which is skipped.
    """
    steps, a, b = common_losses(steps_a, losses_a, steps_b, losses_b)
    if steps.size == 0:
        return LossDrift(common_steps=0)
    absolute, relative = absolute_difference(a, b), relative_difference(a, b)
    differing = np.flatnonzero(differs(a, b))
    at_absolute, at_relative = int(absolute.argmax()), int(relative.argmax())
    return LossDrift(
        common_steps=int(steps.size),
        first_differing_step=int(steps[differing[0]]) if differing.size else None,
        max_absolute=float(absolute[at_absolute]),
        max_absolute_step=int(steps[at_absolute]),
        max_relative=float(relative[at_relative]),
        max_relative_step=int(steps[at_relative]),
        final_step=int(steps[-1]),
        final_absolute=float(absolute[-1]),
        final_relative=float(relative[-1]),
    )


def common_losses(
    steps_a: Sequence[int], losses_a: Sequence[float | None], steps_b: Sequence[int], losses_b: Sequence[float | None]
) -> tuple[Steps, Floats, Floats]:
    """Return the steps at which both runs have a loss, and the losses of both at these steps."""
    recorded_steps_a, recorded_a = recorded_losses(steps_a, losses_a)
    recorded_steps_b, recorded_b = recorded_losses(steps_b, losses_b)
    steps, in_a, in_b = np.intersect1d(recorded_steps_a, recorded_steps_b, assume_unique=True, return_indices=True)
    return steps, recorded_a[in_a], recorded_b[in_b]


def recorded_losses(steps: Sequence[int], losses: Sequence[float | None]) -> tuple[Steps, Floats]:
    """Return the steps that have a loss, and these losses."""
    if len(steps) != len(losses):
        raise ValueError(f"{len(steps)} steps and {len(losses)} losses: each step needs one loss or None")
    numbers = np.array(steps, dtype=np.int64)
    unordered = np.flatnonzero(numbers[1:] <= numbers[:-1])
    if unordered.size:
        before, after = numbers[unordered[0] : unordered[0] + 2]
        raise ValueError(f"steps must increase strictly: {after} follows {before}")
    present = np.array([loss is not None for loss in losses], dtype=np.bool_)
    return numbers[present], np.array([loss for loss in losses if loss is not None], dtype=np.float64)


def differs(a: Floats, b: Floats) -> NDArray[np.bool_]:
    """Return for each pair whether the bits differ; all NaNs count as equal, -0.0 and 0.0 do not."""
    unequal: NDArray[np.bool_] = (a != b) & ~(np.isnan(a) & np.isnan(b))
    opposite_zeros: NDArray[np.bool_] = (np.signbit(a) != np.signbit(b)) & (a == b)
    return unequal | opposite_zeros


def absolute_difference(a: Floats, b: Floats) -> Floats:
    """Return |a - b| for each pair, with the rules of this module for non-finite values."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    # inf - inf is NaN as well; the next line corrects equal infinities.
    difference = np.where(np.isnan(difference), np.inf, difference)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, difference)


def relative_difference(a: Floats, b: Floats) -> Floats:
    """Return |a - b| / |a| for each pair, with the rules of this module for zero and non-finite values."""
    absolute = absolute_difference(a, b)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = absolute / np.abs(a)
    relative = np.where(np.isinf(absolute), np.inf, relative)
    return np.where(absolute == 0.0, 0.0, relative)


# The losses of one run by step, in the form that the tests of loss curves take.


@dataclass(frozen=True, slots=True)
class LossSeries:
    """Strictly increasing steps and one loss for each; None for a step without a loss."""

    steps: Sequence[int]
    losses: Sequence[float | None]

    def __post_init__(self) -> None:
        self.recorded()

    def recorded(self) -> tuple[Steps, Floats]:
        """Return the steps that have a loss, and these losses. Raises ValueError for steps out of order."""
        return recorded_losses(self.steps, self.losses)
