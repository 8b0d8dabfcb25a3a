"""The errors of all kernels at the inputs around one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sweep_bins import errors_of
from .sweep_candidates import Candidate
from .sweep_domain import Encoding
from .sweep_result import KernelErrors, place

RADIUS = {16: 48, 32: 160}
"""How many inputs to each side, by the width of the format."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """Signed errors in ULP at the bit patterns from `first` on, for each kernel -> [n]; NaN where not finite.

    All patterns have one sign; `center`, the worst input of `kernel`, is among them.
    """

    encoding: Encoding
    kernel: str
    center: int
    first: int
    errors: dict[str, NDArray[np.float64]]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Places of the inputs on the line of numbers, counted from the center -> [n]."""
        count = len(next(iter(self.errors.values())))
        steps = np.arange(self.first, self.first + count, dtype=np.int64) - self.center
        return -steps if self.center >= self.encoding.sign else steps

    @property
    def inputs(self) -> NDArray[np.float64]:
        """The inputs -> [n]."""
        count = len(next(iter(self.errors.values())))
        return self.encoding.values(np.arange(self.first, self.first + count))

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "center": place(self.encoding, self.center),
            "first": self.encoding.hexadecimal(self.first),
            "signed_ulp": {name: [None if np.isnan(one) else one for one in errors.tolist()]
                           for name, errors in self.errors.items()},
        }  # fmt: skip


def zoom_on_worst(found: Sequence[KernelErrors]) -> Zoom | None:
    """The neighbourhood of the worst input: aten's, where aten is above half an ULP, else that of all kernels.

    None where every kernel is exact. Coarse kernels are bad in many places; where torch is, matters more.
    """
    aten = [one for one in found if one.kernel == "aten" and one.max_ulp > 0.5]
    worst = max(aten or found, key=lambda one: one.max_ulp)
    if worst.max_at is None:
        return None
    encoding, center = worst.encoding, worst.max_at
    radius, sign = RADIUS[encoding.width], center & encoding.sign
    first = max(center - radius, sign)
    last = min(center + radius, sign + encoding.infinity - 1)
    errors = {one.kernel: _signed(one.candidate, encoding, first, last) for one in found}
    return Zoom(encoding, worst.kernel, center, first, errors)


def _signed(candidate: Candidate, encoding: Encoding, first: int, last: int) -> NDArray[np.float64]:
    """Errors at the patterns first to last, from the same whole pieces that the sweep measures."""
    size = encoding.piece
    parts = []
    for start in range(first // size * size, last + 1, size):
        inputs = encoding.tensor(start, size)
        errors = errors_of(encoding, candidate.results(inputs), candidate.exact_results(inputs))
        signed = np.where(errors.finite, errors.signed, np.nan)
        parts.append(signed[max(first - start, 0) : last + 1 - start])
    return np.concatenate(parts)
