"""The arithmetic of the hash that `digest` defines, by torch operations: all numbers are int64 and wrap around."""

from __future__ import annotations

import math

import torch

M32, M64 = 2**32 - 1, 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
_KEY_SEED = 0x6E756D6472696674
LENGTH_FACTOR = 0xD6E8FEB86659FD93
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
STRIPE, BLOCK = 64, 4096
"""Sizes in bytes."""


class DigestConstants:
    """The tensors that all digests on a device need.

    keys: int32 [1024]
    zero_sums, zero_products: int64 [65, 8]: what zeros from a stripe to the end of a block add to the sums of a lane
    zeros: uint8 [4096]
    places: int64 [4096]: 0, 1, 2, ...
    """

    def __init__(self, device: torch.device) -> None:
        words = [mix64((_KEY_SEED + (i + 1) * GOLDEN) & M64) & M32 for i in range(BLOCK // 4)]
        keys = torch.tensor(words, dtype=torch.int64, device="cpu")
        low, high = keys.view(BLOCK // STRIPE, 8, 2).unbind(-1)
        self.keys = keys.view(torch.int32)[::2].contiguous().to(device)  # the low halves, as int32
        self.zero_sums = _from_each_on(low + (high << 32)).to(device)
        self.zero_products = _from_each_on(low * high).to(device)
        self.zeros = torch.zeros(BLOCK, dtype=torch.uint8, device=device)
        self.places = torch.arange(BLOCK, dtype=torch.int64, device=device)
        self._device = device
        self._limits: dict[torch.dtype, list[torch.Tensor]] = {}

    def limits(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return infinity, minus infinity and zero. `where` would copy Python's numbers to the device in each call."""
        if dtype not in self._limits:
            numbers = (math.inf, -math.inf, 0.0)
            self._limits[dtype] = [torch.full((), number, dtype=dtype, device=self._device) for number in numbers]
        return self._limits[dtype]


def _from_each_on(stripes: torch.Tensor) -> torch.Tensor:
    """Return int64 [65, 8]: the sums of the last 64, 63, ... 0 rows of `stripes`, int64 [64, 8]."""
    sums = stripes.flip(0).cumsum(0).flip(0)
    return torch.cat([sums, torch.zeros_like(sums[:1])])


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def mix64(value: int) -> int:
    for shift, factor in _MIX:
        value = (value ^ (value >> shift)) * factor & M64
    return value


def mix64_tensor(values: torch.Tensor) -> torch.Tensor:
    # torch shifts int64 arithmetically: the mask removes the copies of the sign bit.
    for shift, factor in _MIX:
        values = values ^ ((values >> shift) & ((1 << (64 - shift)) - 1))
        values = values if factor == 1 else values * signed(factor)
    return values
