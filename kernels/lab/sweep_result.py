"""The results of a sweep: totals over all bins, the envelope for the plot, the JSON, and a zoom on the worst input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sweep_bins import COUNTS, errors_of, lane_sums
from .sweep_candidates import Candidate
from .sweep_domain import Domain, Encoding
from .sweep_state import SweepProgress

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KernelErrors:
    """The errors of one kernel over all inputs. Shares are relative to the measured inputs, and errors are in ULP.

    `max_at` and `disagree_at` are bit patterns, or None. `slowdown` is the time for an input as a multiple of the time
    that torch's own op takes, or None if torch's op was not timed."""

    candidate: Candidate
    domain: Domain
    progress: SweepProgress

    @property
    def kernel(self) -> str:
        return self.candidate.kernel

    @property
    def encoding(self) -> Encoding:
        return self.domain.encoding

    def total(self, count: str) -> int:
        """Return the sum of one of the `COUNTS` over all bins."""
        return int(self.progress.bins[count].sum())

    @property
    def max_ulp(self) -> float:
        return float(self.progress.bins["max_ulp"].max())

    @property
    def max_at(self) -> int | None:
        return int(self.progress.worst["at"][0]) if len(self.progress.worst) else None

    @property
    def disagree_at(self) -> int | None:
        places = self.progress.bins["disagree_at"]
        patterns = places[places >= 0]
        return int(patterns.min()) if patterns.size else None

    @property
    def mean_ulp(self) -> float:
        return self._mean("ulp")

    @property
    def bias_ulp(self) -> float:
        return self._mean("bias")

    def share(self, count: str) -> float:
        """Return one of the `COUNTS` divided by the number of measured inputs."""
        return self.total(count) / max(self.total("measured"), 1)

    @property
    def slowdown(self) -> float | None:
        progress = self.progress
        if not progress.plain_inputs or not progress.plain_seconds:
            return None
        return progress.thread_seconds / progress.inputs() / (progress.plain_seconds / progress.plain_inputs)

    def _mean(self, lanes: str) -> float:
        return math.fsum(lane_sums(self.progress.bins[lanes])) / max(self.total("measured"), 1)


@dataclass(frozen=True, slots=True)
class BinErrors:
    """The bins that contain inputs; each field is an array [bins]. `low` and `high` are a bin's bounds: the numbers
    nearest to zero and farthest from zero."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    low: Floats
    high: Floats
    mean: Floats
    bias: Floats
    records: NDArray[Any]

    @classmethod
    def of(cls, errors: KernelErrors) -> BinErrors:
        encoding = errors.encoding
        numbers = np.flatnonzero(errors.progress.bins["count"])
        records = errors.progress.bins[numbers]
        first = numbers << encoding.bin_shift
        last = first + (1 << encoding.bin_shift) - 1
        measured = np.maximum(records["measured"], 1)
        return cls(
            first=first,
            last=last,
            low=encoding.values(first),
            high=encoding.values(last),
            mean=lane_sums(records["ulp"]) / measured,
            bias=lane_sums(records["bias"]) / measured,
            records=records,
        )

    def centers(self, encoding: Encoding) -> Floats:
        """Return the geometric mean of each bin's bounds, or NaN for a bin that contains NaN."""
        smallest = encoding.value(1)
        low, high = np.maximum(np.abs(self.low), smallest), np.abs(self.high)
        with np.errstate(invalid="ignore"):  # a product of roots, because the product of the numbers would overflow
            middle = np.sqrt(low) * np.sqrt(high)
        middle[~np.isfinite(self.high)] = np.nan
        return np.where(self.first >= encoding.sign, -middle, middle)


def as_json(errors: KernelErrors) -> dict[str, Any]:
    """Return the result of one kernel, with its bins as columns, and strings for numbers that JSON lacks."""
    encoding, progress = errors.encoding, errors.progress
    bins = BinErrors.of(errors)
    columns: dict[str, list[Any]] = {
        "first": [encoding.hexadecimal(int(pattern)) for pattern in bins.first],
        "low": [json_number(bound) for bound in bins.low],
        "high": [json_number(bound) for bound in bins.high],
        **{name: bins.records[name].tolist() for name in COUNTS},
        "max_ulp": bins.records["max_ulp"].tolist(),
        "max_at": [None if pattern < 0 else encoding.hexadecimal(int(pattern)) for pattern in bins.records["max_at"]],
        "mean_ulp": bins.mean.tolist(),
        "bias_ulp": bins.bias.tolist(),
    }
    return {
        "kernel": errors.kernel,
        "inputs": errors.total("count"),
        "measured": errors.total("measured"),
        "max_ulp": errors.max_ulp,
        "mean_ulp": errors.mean_ulp,
        "bias_ulp": errors.bias_ulp,
        **{name: errors.total(name) for name in COUNTS[2:]},
        "first_disagreement": None if errors.disagree_at is None else place(encoding, errors.disagree_at),
        "worst": [
            {"ulp": float(worst_input["ulp"]), **place(encoding, int(worst_input["at"]))}
            for worst_input in progress.worst
        ],
        "seconds": progress.wall,
        "slowdown": errors.slowdown,
        "bins": columns,
    }


def place(encoding: Encoding, pattern: int) -> dict[str, Any]:
    """Return one input: its bits and its value."""
    value = encoding.value(pattern)
    return {"bits": encoding.hexadecimal(pattern), "value": json_number(value)}


def json_number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


# The errors of all kernels at the inputs around one input.

RADIUS = {16: 48, 32: 160}
"""The number of inputs on each side of the worst input, by the width of the format."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """The signed errors in ULP of each kernel at the `n` bit patterns from `first` on.

    `errors` has an array [n] for each kernel's name, with NaN where the result of the kernel or of the reference is not
    finite. All patterns have one sign; `center`, the worst input of `kernel`, is among them.
    """

    encoding: Encoding
    kernel: str
    center: int
    first: int
    errors: dict[str, NDArray[np.float64]]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The places of the inputs on the number line, counted from `center`: an array [n]."""
        count = len(next(iter(self.errors.values())))
        steps = np.arange(self.first, self.first + count, dtype=np.int64) - self.center
        return -steps if self.center >= self.encoding.sign else steps

    @property
    def inputs(self) -> NDArray[np.float64]:
        """The inputs, an array [n]."""
        count = len(next(iter(self.errors.values())))
        return self.encoding.values(np.arange(self.first, self.first + count))

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "center": place(self.encoding, self.center),
            "first": self.encoding.hexadecimal(self.first),
            "signed_ulp": {name: [None if np.isnan(error) else error for error in errors.tolist()]
                           for name, errors in self.errors.items()},
        }  # fmt: skip


def zoom_on_worst(all_errors: Sequence[KernelErrors]) -> Zoom | None:
    """Return the neighbourhood of aten's worst input if its error is above half an ULP, and otherwise that of the worst
    input of all kernels.

    Return None if every kernel is exact. aten comes first because a coarse kernel is inaccurate for many inputs, so
    the inputs for which torch is inaccurate matter more.
    """
    aten = [
        kernel_errors for kernel_errors in all_errors if kernel_errors.kernel == "aten" and kernel_errors.max_ulp > 0.5
    ]
    worst = max(aten or all_errors, key=lambda kernel_errors: kernel_errors.max_ulp)
    if worst.max_at is None:
        return None
    encoding, center = worst.encoding, worst.max_at
    radius, sign = RADIUS[encoding.width], center & encoding.sign
    first = max(center - radius, sign)
    last = min(center + radius, sign + encoding.infinity - 1)
    # Compute the same whole pieces as the sweep does: a kernel's results may depend on the tensor.
    size = encoding.piece
    errors = {}
    for kernel_errors in all_errors:
        parts = []
        for start in range(first // size * size, last + 1, size):
            inputs = encoding.tensor(start, size)
            of_piece = errors_of(
                encoding, kernel_errors.candidate.results(inputs), kernel_errors.candidate.exact_results(inputs)
            )
            signed = np.where(of_piece.finite, of_piece.signed, np.nan)
            parts.append(signed[max(first - start, 0) : last + 1 - start])
        errors[kernel_errors.kernel] = np.concatenate(parts)
    return Zoom(encoding, worst.kernel, center, first, errors)
