"""The inputs of a sweep, and their division into portions.

The bit patterns of a format are divided into blocks, a block into pieces, and a piece into runs. A kernel is called on
one piece at a time. A run consists of consecutive requested patterns of one bin. A kernel always receives whole pieces,
so that its result for an input does not depend on the requested range.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from numdrift.harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive bit patterns `first` to `last`, inclusive, of one bin."""

    first: int
    last: int
    bin: int


@dataclass(frozen=True, slots=True)
class Domain:
    """The inputs from `low` to `high`, inclusive; if both are None, all inputs, including NaN.

    `intervals` are the ranges of their bit patterns: pairs (first, last), inclusive, in ascending order.
    """

    encoding: Encoding
    low: float | None
    high: float | None
    intervals: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, encoding: Encoding) -> Domain:
        """Return the domain of every bit pattern of a format."""
        return cls(encoding, None, None, ((0, encoding.patterns - 1),))

    @classmethod
    def between(cls, encoding: Encoding, low: float, high: float) -> Domain:
        """Return the domain from low to high, in which zero has both signs. Raises UsageError if no number is in it."""
        # Places on the number line: 0 is zero, n is the n-th number from zero, whose magnitude has the bit pattern |n|.
        line = range(-encoding.infinity, encoding.infinity + 1)

        def value(place: int) -> float:
            return math.copysign(encoding.value(abs(place)), place)

        first = bisect.bisect_left(line, low, key=value) - encoding.infinity
        last = bisect.bisect_right(line, high, key=value) - 1 - encoding.infinity
        if math.isnan(low) or math.isnan(high) or first > last:
            raise UsageError(f"--range {low:g}:{high:g} contains no {encoding.name} number")
        intervals = []
        if last >= 0:
            intervals.append((max(first, 0), last))
        if first <= 0:
            intervals.append((encoding.sign + max(-last, 0), encoding.sign - first))
        return cls(encoding, low, high, tuple(intervals))

    @classmethod
    def parse(cls, encoding: Encoding, text: str | None) -> Domain:
        """Parse LOW:HIGH; None means every bit pattern. Raises UsageError."""
        if text is None:
            return cls.whole(encoding)
        parts = text.split(":")
        try:
            low, high = (float(part) for part in parts)
        except ValueError:
            raise UsageError(f"--range {text!r} is not LOW:HIGH, as in --range -1:1") from None
        if low > high:
            raise UsageError(f"--range {text!r} has the larger number first; write {parts[1]}:{parts[0]}")
        return cls.between(encoding, low, high)

    @property
    def is_whole(self) -> bool:
        return self.low is None

    @property
    def count(self) -> int:
        """The number of inputs."""
        return sum(last - first + 1 for first, last in self.intervals)

    def described(self) -> str:
        """Return `LOW:HIGH`, or `all`."""
        return "all" if self.low is None or self.high is None else f"{self.low:.17g}:{self.high:.17g}"

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that contain inputs, ascending."""
        size = self.encoding.block
        numbers = {n for first, last in self.intervals for n in range(first // size, last // size + 1)}
        return sorted(numbers)

    def pieces(self, block: int) -> Iterator[tuple[int, list[Run]]]:
        """Yield the pieces of a block that contain inputs: the first bit pattern of each, and its runs."""
        size, shift = self.encoding.piece, self.encoding.bin_shift
        start = block * self.encoding.block
        for piece in range(start, start + self.encoding.block, size):
            runs = []
            for first, last in self.intervals:
                low, high = max(piece, first), min(piece + size - 1, last)
                for number in range(low >> shift, (high >> shift) + 1) if low <= high else ():
                    runs.append(Run(max(low, number << shift), min(high, ((number + 1) << shift) - 1), number))
            if runs:
                yield piece, runs

    def inputs_of(self, block: int) -> int:
        """Return the number of inputs in a block."""
        start = block * self.encoding.block
        end = start + self.encoding.block - 1
        return sum(max(0, min(end, last) - max(start, first) + 1) for first, last in self.intervals)


# The floating-point formats of sweeps, and the division of their bit patterns.

BIN_MANTISSA_BITS = 3
"""The number of leading mantissa bits that, with sign and exponent, identify a bin."""

BLOCK = 1 << 20
"""The number of inputs that a thread measures before it takes the next block; for 16-bit formats `BLOCK_16`."""

BLOCK_16 = 1 << 12

PIECE = 1 << 16
"""The number of inputs in one call of a kernel: the fastest of 2**14 to 2**20 for tanh (inputs stay in the cache)."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """One binary format. `width` is the number of bits, `stored` is how many of them store the mantissa, and `least` is
    the exponent of the smallest normal number."""

    name: str
    width: int
    stored: int
    least: int

    @property
    def precision(self) -> int:
        """The number of significant bits, including the hidden one."""
        return self.stored + 1

    @property
    def patterns(self) -> int:
        return 1 << self.width

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """The bit pattern of infinity; patterns above it, up to the sign bit, are NaN."""
        return self.sign - (1 << self.stored)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return self.value(self.infinity - 1)

    @property
    def overflow(self) -> float:
        """The smallest magnitude that rounds to infinity: half an ULP above the largest number."""
        return self.largest + 2.0 ** (1 - self.least - self.precision)

    @property
    def bin_shift(self) -> int:
        """The right shift that turns a bit pattern into the number of its bin."""
        return self.stored - BIN_MANTISSA_BITS

    @property
    def bins(self) -> int:
        return self.patterns >> self.bin_shift

    @property
    def block(self) -> int:
        return BLOCK if self.width > 16 else BLOCK_16

    @property
    def piece(self) -> int:
        return min(PIECE, self.block)

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.name)
        return dtype

    def tensor(self, first: int, count: int) -> torch.Tensor:
        """Return the numbers with the bit patterns from `first` on, as a tensor [count] of this format."""
        if self.width == 32:
            return torch.from_numpy((np.arange(count, dtype=np.uint32) + np.uint32(first)).view(np.float32))
        # numpy has no bfloat16, and torch cannot view uint16 as bfloat16: int16 has the same bits
        bits = np.arange(count, dtype=np.uint16) + np.uint16(first)
        return torch.from_numpy(bits.view(np.int16)).view(self.torch_dtype)

    def values(self, patterns: NDArray[Any]) -> NDArray[np.float64]:
        """Return the numbers with these bit patterns, exactly."""
        bits = np.asarray(patterns, np.int64)
        with np.errstate(invalid="ignore"):
            if self.name == "float16":
                return bits.astype(np.uint16).view(np.float16).astype(np.float64)
            # bfloat16 is the upper half of float32
            wide = (bits << (32 - self.width)).astype(np.uint32)
            return wide.view(np.float32).astype(np.float64)

    def value(self, pattern: int) -> float:
        """Return the number with this bit pattern."""
        return float(self.values(np.array([pattern]))[0])

    def hexadecimal(self, pattern: int) -> str:
        """Return a bit pattern in hexadecimal, for example 0x3f800000."""
        return f"0x{pattern:0{self.width // 4}x}"


ENCODINGS = {
    encoding.name: encoding
    for encoding in (
        Encoding("float32", 32, 23, -126),
        Encoding("bfloat16", 16, 7, -126),
        Encoding("float16", 16, 10, -14),
    )
}
"""The formats by their torch names."""
