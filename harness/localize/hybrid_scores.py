"""How far a hybrid's values are from the reference's, in units of the reference's rounding noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..drift.step_noise import Noise
from ..drift.step_score import TINY, UNIT_ROUNDOFF
from .hybrid import Values


@dataclass(frozen=True, slots=True)
class Drift:
    """z of every value (see `harness.drift.score`). `score` is the largest of the floating ones, `tensor`
    where it is; `discrete` counts integers that differ. `amount` is the root mean square of the scores,
    infinite ones counted as LARGE."""

    scores: Mapping[str, float]
    discrete: int

    @property
    def score(self) -> float:
        return max(self.scores.values(), default=0.0)

    @property
    def tensor(self) -> str:
        return max(self.scores, key=lambda name: self.scores[name], default="")

    @property
    def amount(self) -> float:
        squares = [min(score, LARGE) ** 2 for score in self.scores.values()]
        return math.sqrt(sum(squares) / max(1, len(squares)))

    @property
    def is_none(self) -> bool:
        return not self.discrete and not any(self.scores.values())

    def moved(self, threshold: float) -> int:
        """How many floating values are farther away than the threshold."""
        return sum(score > threshold for score in self.scores.values())


LARGE = 1e12


class Scorer:
    """Scores values against the reference's."""

    def __init__(self, reference: Values, noise: Noise) -> None:
        self._reference = reference
        self._noise = noise

    def drift(self, values: Values) -> Drift:
        scores: dict[str, float] = {}
        discrete = 0
        for name in {**self._reference, **values}:
            a, b = self._reference.get(name), values.get(name)
            if a is None or b is None:
                scores[name] = math.inf
            elif a.is_floating_point() or a.is_complex():
                scores[name] = self._floating(name, a, b)
            else:
                known = self._noise.of(name)
                discrete += not (known is not None and known.flips) and (a.shape != b.shape or not torch.equal(a, b))
        return Drift(scores, discrete)

    def _floating(self, name: str, a: torch.Tensor, b: torch.Tensor) -> float:
        if a.shape != b.shape or b.is_floating_point() != a.is_floating_point():
            return math.inf
        left, right = _wide(a), _wide(b)
        finite = torch.isfinite(left)
        if not torch.equal(finite, torch.isfinite(right)) or not torch.equal(
            left[~finite].nan_to_num(), right[~finite].nan_to_num()
        ):
            return math.inf
        distance = float((right[finite] - left[finite]).norm())
        if not distance:
            return 0.0
        size, known = float(left[finite].norm()), self._noise.of(name)
        rms = 0.0 if known is None else known.size if name in self._noise.tensors else known.rms * size
        return distance / (rms + max(_unit(a), _unit(b)) * size + TINY)


def _unit(tensor: torch.Tensor) -> float:
    return UNIT_ROUNDOFF.get(str(tensor.dtype).removeprefix("torch."), 2.0**-24)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return wide.double().reshape(-1)
