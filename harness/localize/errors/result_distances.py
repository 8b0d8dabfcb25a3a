"""The distances between the two sides' results of a block."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from ...drift.step_score import UNIT_ROUNDOFF
from ...tape.replaying.replay import is_same

ResultPairs = Iterable[tuple[torch.Tensor, torch.Tensor]]
"""Side a's and side b's version of each result."""


def unit_roundoff_of(dtype: torch.dtype, unknown: float = 0.0) -> float:
    """Return the unit roundoff of a dtype, as a share of a value's size; `unknown` for whole numbers."""
    return UNIT_ROUNDOFF.get(str(dtype).removeprefix("torch."), unknown)


def largest_distance(pairs: ResultPairs) -> tuple[float, float]:
    """Return the largest distance between two versions of a result: as a share of its size, and in unit roundoffs."""
    distances = [(relative(a, b), max(unit_roundoff_of(a.dtype), unit_roundoff_of(b.dtype))) for a, b in pairs]
    roundings = [distance / unit if unit else math.inf if distance else 0.0 for distance, unit in distances]
    return max(distance for distance, _ in distances), max(roundings)


def is_single(pairs: ResultPairs) -> bool:
    """Check that all differing results are single numbers, whose errors do not average out."""
    return all(a.numel() == 1 or is_same(a, b.to(a.dtype)) for a, b in pairs)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return ||b - a|| / ||a||; for whole numbers, return the share of the elements that differ."""
    if a.shape != b.shape:
        return 1.0
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b.to(a.dtype))
    if not a.is_floating_point():
        return float((a != b).double().mean()) if a.numel() else 0.0
    size = float(a.double().norm())
    apart = float((b.double() - a.double()).norm())
    return apart / size if size else (1.0 if apart else 0.0)
