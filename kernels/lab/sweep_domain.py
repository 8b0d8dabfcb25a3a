"""Which inputs a sweep goes over, and in which portions.

The bit patterns of a format are divided into blocks, a block into pieces that a kernel is called on, and a
piece into runs: consecutive patterns of one bin that are asked for. A kernel always gets whole pieces, so that
the bits it returns for an input do not depend on the range that was asked for.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass

from numdrift.harness.errors import UsageError

from .sweep_encoding import Encoding


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive bit patterns `first` to `last`, inclusive, of one bin."""

    first: int
    last: int
    bin: int


@dataclass(frozen=True, slots=True)
class Domain:
    """The inputs from `low` to `high`, inclusive; all of them, NaN too, when both are None.

    `intervals` are the bit patterns: (first, last), inclusive, ascending.
    """

    encoding: Encoding
    low: float | None
    high: float | None
    intervals: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, encoding: Encoding) -> Domain:
        """Every bit pattern of a format."""
        return cls(encoding, None, None, ((0, encoding.patterns - 1),))

    @classmethod
    def between(cls, encoding: Encoding, low: float, high: float) -> Domain:
        """The numbers from low to high; zero is in it with both signs. Raises UsageError when there is none."""
        first, last = _places(encoding, low, high)
        if math.isnan(low) or math.isnan(high) or first > last:
            raise UsageError(f"--range {low:g}:{high:g} holds no {encoding.name} number")
        intervals = []
        if last >= 0:
            intervals.append((max(first, 0), last))
        if first <= 0:
            intervals.append((encoding.sign + max(-last, 0), encoding.sign - first))
        return cls(encoding, low, high, tuple(intervals))

    @classmethod
    def parse(cls, encoding: Encoding, text: str | None) -> Domain:
        """Understand LOW:HIGH; None is every bit pattern. Raises UsageError."""
        if text is None:
            return cls.whole(encoding)
        parts = text.split(":")
        try:
            low, high = (float(part) for part in parts)
        except ValueError:
            raise UsageError(f"--range {text!r} is not LOW:HIGH, as in --range -1:1") from None
        if low > high:
            raise UsageError(f"--range {text!r} goes backwards: write {parts[1]}:{parts[0]}")
        return cls.between(encoding, low, high)

    @property
    def is_whole(self) -> bool:
        return self.low is None

    @property
    def count(self) -> int:
        """How many inputs there are."""
        return sum(last - first + 1 for first, last in self.intervals)

    def described(self) -> str:
        """`LOW:HIGH`, or `all`."""
        return "all" if self.low is None or self.high is None else f"{self.low:.17g}:{self.high:.17g}"

    def blocks(self) -> list[int]:
        """The numbers of the blocks that hold inputs, ascending."""
        size = self.encoding.block
        numbers = {n for first, last in self.intervals for n in range(first // size, last // size + 1)}
        return sorted(numbers)

    def pieces(self, block: int) -> Iterator[tuple[int, list[Run]]]:
        """The pieces of a block that hold inputs: the first bit pattern of each, and its runs."""
        size = self.encoding.piece
        start = block * self.encoding.block
        for first in range(start, start + self.encoding.block, size):
            if runs := list(self._runs(first, first + size - 1)):
                yield first, runs

    def inputs_of(self, block: int) -> int:
        """How many inputs a block holds."""
        start = block * self.encoding.block
        end = start + self.encoding.block - 1
        return sum(max(0, min(end, last) - max(start, first) + 1) for first, last in self.intervals)

    def _runs(self, start: int, end: int) -> Iterator[Run]:
        shift = self.encoding.bin_shift
        for first, last in self.intervals:
            low, high = max(start, first), min(end, last)
            for number in range(low >> shift, (high >> shift) + 1) if low <= high else ():
                yield Run(max(low, number << shift), min(high, ((number + 1) << shift) - 1), number)


def _places(encoding: Encoding, low: float, high: float) -> tuple[int, int]:
    """The first and last place on the line of numbers, 0 for zero and n for its n-th neighbour, in a range."""
    places = range(-encoding.infinity, encoding.infinity + 1)

    def value(place: int) -> float:
        return math.copysign(encoding.value(abs(place)), place)

    first = bisect.bisect_left(places, low, key=value)
    last = bisect.bisect_right(places, high, key=value) - 1
    return first - encoding.infinity, last - encoding.infinity
