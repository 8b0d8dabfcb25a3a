"""The hash of an array's contents, as digests have it: computed from values that are on disk, without torch.

`harness/observers/values/digest.py` defines the hash and explains its strength.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from .numpy_values import Array

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_KEY_SEED = 0x6E756D6472696674
_LENGTH_FACTOR = 0xD6E8FEB86659FD93
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_STRIPE, _BLOCK = 64, 4096
"""Sizes in bytes."""

Words = NDArray[np.uint64]


def content_hash(values: Array) -> str:
    """Return the hash of an array's bytes in row-major order, as the hexadecimal digits of a journal."""
    data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
    blocks, stripes = -(-data.size // _BLOCK), -(-data.size // _STRIPE)
    padded = np.zeros(blocks * _BLOCK, np.uint8)
    padded[: data.size] = data
    words = padded.view("<u4").reshape(blocks, 64, 8, 2)  # [block, stripe, lane, word]
    keyed = (words + _keys()).astype(np.uint64)  # uint32 wraps around
    low, high = keyed[..., 0], keyed[..., 1]
    products, sums = low * high, low + (high << np.uint64(32))
    if stripes % 64:  # the stripes after the last stripe of the data do not count
        products[-1, stripes % 64 :] = 0
        sums[-1, stripes % 64 :] = 0
    lanes = np.arange(blocks * 8, dtype=np.uint64).reshape(blocks, 8)
    inner = _mix64(sums.sum(1, dtype=np.uint64) + lanes * np.uint64(_GOLDEN))
    total = int(_mix64(products.sum(1, dtype=np.uint64) + inner).sum(dtype=np.uint64))
    mixed = _mix64(np.array([(total + data.size * _LENGTH_FACTOR) & _MASK], np.uint64))
    return f"{int(mixed[0]) or 1:016x}"


@functools.cache
def _keys() -> NDArray[np.uint32]:
    """Return the keys: uint32 [64, 8, 2], the low halves of the splitmix64 sequence from _KEY_SEED."""
    seeds = [(_KEY_SEED + (number + 1) * _GOLDEN) & _MASK for number in range(_BLOCK // 4)]
    return _mix64(np.array(seeds, np.uint64)).astype(np.uint32).reshape(64, 8, 2)


def _mix64(values: Words) -> Words:
    for shift, factor in _MIX:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values
