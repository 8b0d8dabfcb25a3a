"""The floating-point formats that a sweep goes over, and how their bit patterns are divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

BIN_MANTISSA_BITS = 3
"""A bin holds the inputs of one sign, one exponent and one value of this many leading mantissa bits."""

BLOCK = 1 << 20
"""Inputs that one thread measures before it takes the next; for 16-bit formats it is `BLOCK_16`."""

BLOCK_16 = 1 << 12

PIECE = 1 << 16
"""Inputs that a kernel is called on at once; of 2**14 to 2**20, the fastest for tanh (they stay in the
cache)."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """One binary format: `width` and `stored` (mantissa) are in bits, `least` is the smallest normal
    exponent."""

    name: str
    width: int
    stored: int
    least: int

    @property
    def precision(self) -> int:
        """Significant bits, with the hidden one."""
        return self.stored + 1

    @property
    def patterns(self) -> int:
        return 1 << self.width

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """The bit pattern of infinity; those above it up to the sign bit are NaN."""
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
        """A bit pattern shifted to the right by this is the number of its bin."""
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
        """The numbers with the bit patterns from `first` on, as a tensor [count] of this format."""
        if self.width == 32:
            return torch.from_numpy((np.arange(count, dtype=np.uint32) + np.uint32(first)).view(np.float32))
        bits = np.arange(count, dtype=np.uint16) + np.uint16(first)
        return torch.from_numpy(bits.view(np.int16)).view(self.torch_dtype)

    def values(self, patterns: NDArray[Any]) -> NDArray[np.float64]:
        """The numbers with these bit patterns, exactly."""
        bits = np.asarray(patterns, np.int64)
        with np.errstate(invalid="ignore"):
            if self.name == "float16":
                return bits.astype(np.uint16).view(np.float16).astype(np.float64)
            wide = (bits << (32 - self.width)).astype(np.uint32)
            return wide.view(np.float32).astype(np.float64)

    def value(self, pattern: int) -> float:
        """The number with this bit pattern."""
        return float(self.values(np.array([pattern]))[0])

    def hexadecimal(self, pattern: int) -> str:
        """A bit pattern as people write it: 0x3f800000."""
        return f"0x{pattern:0{self.width // 4}x}"


ENCODINGS = {
    one.name: one
    for one in (
        Encoding("float32", 32, 23, -126),
        Encoding("bfloat16", 16, 7, -126),
        Encoding("float16", 16, 10, -14),
    )
}
"""The formats by their torch names."""
