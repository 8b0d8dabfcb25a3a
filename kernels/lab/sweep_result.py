"""What a sweep found: totals over all bins, the envelope for the plot, and the JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sweep_bins import COUNTS, lane_sums
from .sweep_candidates import Candidate
from .sweep_domain import Domain, Encoding
from .sweep_state import SweepProgress

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KernelErrors:
    """The errors of one kernel over all inputs; shares are of the measured inputs, errors in ULP.

    `max_at` and `disagree_at` are bit patterns, None where there is none. `slowdown` is the time for an input
    over that of torch's own op alone, None where too little was measured."""

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
        """The sum of one of the `COUNTS` over all bins."""
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
        found = places[places >= 0]
        return int(found.min()) if found.size else None

    @property
    def mean_ulp(self) -> float:
        return self._mean("ulp")

    @property
    def bias_ulp(self) -> float:
        return self._mean("bias")

    def share(self, count: str) -> float:
        """One of the `COUNTS` over the number of measured inputs."""
        return self.total(count) / max(self.total("measured"), 1)

    @property
    def slowdown(self) -> float | None:
        kept = self.progress
        if not kept.plain_inputs or not kept.plain_seconds:
            return None
        return kept.thread_seconds / kept.inputs() / (kept.plain_seconds / kept.plain_inputs)

    def _mean(self, lanes: str) -> float:
        return math.fsum(lane_sums(self.progress.bins[lanes])) / max(self.total("measured"), 1)


@dataclass(frozen=True, slots=True)
class BinErrors:
    """The bins with inputs, as columns -> [bins]. `low` and `high` are those nearest to and farthest from
    zero."""

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
        """A finite number of each bin in the middle of its logarithms; NaN for bins of NaN."""
        smallest = encoding.value(1)
        low, high = np.maximum(np.abs(self.low), smallest), np.abs(self.high)
        with np.errstate(invalid="ignore"):
            middle = np.sqrt(low) * np.sqrt(high)
        middle[~np.isfinite(self.high)] = np.nan
        return np.where(self.first >= encoding.sign, -middle, middle)


def as_json(errors: KernelErrors) -> dict[str, Any]:
    """The result of one kernel, with its bins as columns; numbers that JSON lacks are texts."""
    encoding, progress = errors.encoding, errors.progress
    bins = BinErrors.of(errors)
    columns: dict[str, list[Any]] = {
        "first": [encoding.hexadecimal(int(one)) for one in bins.first],
        "low": [json_number(one) for one in bins.low],
        "high": [json_number(one) for one in bins.high],
        **{name: bins.records[name].tolist() for name in COUNTS},
        "max_ulp": bins.records["max_ulp"].tolist(),
        "max_at": [_bits(encoding, int(one)) for one in bins.records["max_at"]],
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
        "worst": [{"ulp": float(one["ulp"]), **place(encoding, int(one["at"]))} for one in progress.worst],
        "seconds": progress.wall,
        "slowdown": errors.slowdown,
        "bins": columns,
    }


def place(encoding: Encoding, pattern: int) -> dict[str, Any]:
    """One input: its bits and its value."""
    value = encoding.value(pattern)
    return {"bits": encoding.hexadecimal(pattern), "value": json_number(value)}


def json_number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _bits(encoding: Encoding, pattern: int) -> str | None:
    return None if pattern < 0 else encoding.hexadecimal(pattern)
