"""The losses of one run, as input to the loss plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from numdrift.harness.drift.loss_distance import Floats, Steps, recorded_losses

_BUCKETS = 1000


@dataclass(frozen=True, slots=True)
class Curve:
    """The losses of one run.

    label: the run's name in the legend, and in the `reference` of other curves
    steps: strictly increasing steps
    losses: a loss for each step, or None for a step without one
    status: the outcome of the run, "complete" or the problem
    reference: the label of the curve that this curve is compared with, or None for a reference
    """

    label: str
    steps: Sequence[int]
    losses: Sequence[float | None]
    status: str = "complete"
    reference: str | None = None

    def __post_init__(self) -> None:
        if not self.label.strip():
            raise ValueError("a curve needs a label")
        if self.reference == self.label:
            raise ValueError(f"curve {self.label!r} cannot be its own reference")
        try:
            self.recorded()
        except ValueError as error:
            raise ValueError(f"curve {self.label!r}: {error}") from None

    def recorded(self) -> tuple[Steps, Floats]:
        """Return the steps that have a loss, and these losses."""
        return recorded_losses(self.steps, self.losses)

    def titled(self) -> str:
        """Return the label, with the last step of a run that did not complete."""
        steps, losses = self.recorded()
        # If the losses ended the run, `non_finite` describes them.
        if self.status == "nonfinite" and not np.isfinite(losses).all():
            return self.label
        if self.status != "complete":
            where = f"after step {steps[-1]}" if steps.size else "before its first loss"
            return f"{self.label} ({self.status} {where})"
        return self.label if steps.size else f"{self.label} (no losses)"

    def non_finite(self) -> str:
        """Describe the losses that are NaN or infinite, or return "" if there are none."""
        steps, losses = self.recorded()
        places = np.flatnonzero(~np.isfinite(losses))
        if not places.size:
            return ""
        first = steps[places[0]]
        if places.size == steps.size - places[0]:
            return f"non-finite from step {first}"
        return f"non-finite at step {first}" + (f" and {places.size - 1} later" if places.size > 1 else "")


def resolved(curves: Sequence[Curve], reference: str | None = None) -> list[Curve]:
    """Check the labels and return the curves; curves without their own reference are compared with `reference`.

    Raises ValueError if there is nothing to draw, a label occurs twice or a reference is missing.
    """
    if not any(curve.recorded()[0].size for curve in curves):
        raise ValueError("nothing to draw: no curve has a loss")
    labels = [curve.label for curve in curves]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(f"curves need different labels; these occur twice: {', '.join(twice)}")
    wanted = {curve.reference for curve in curves} | {reference}
    missing = sorted(label for label in wanted if label is not None and label not in labels)
    if missing:
        raise ValueError(f"no curve is called {', '.join(missing)}; the curves are {', '.join(labels)}")
    return [
        curve if curve.reference is not None or curve.label == reference else replace(curve, reference=reference)
        for curve in curves
    ]


def thinned(values: Floats) -> NDArray[np.intp]:
    """Choose at most about 3000 points that look like the whole curve: its extremes, gaps (NaN) and both ends."""
    if values.size <= 3 * _BUCKETS:
        return np.arange(values.size)
    # Keep the extremes of each bucket, and one gap. A drawn curve shows nothing else.
    kept = [0, values.size - 1]
    for bucket in np.array_split(np.arange(values.size), _BUCKETS):
        gaps = np.isnan(values[bucket])
        if gaps.any():
            kept.append(int(bucket[gaps.argmax()]))
        if not gaps.all():
            kept += [int(bucket[np.nanargmin(values[bucket])]), int(bucket[np.nanargmax(values[bucket])])]
    return np.unique(kept)
