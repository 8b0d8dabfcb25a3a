"""The digest of one tensor as 64 bytes. This module does not need torch, since guests and readers share it.

Little endian, no padding (`struct` format `<QQQQdddd`):

| offset | field   | type    | meaning |
|-------:|---------|---------|---------|
|      0 | hash    | uint64  | of the bits of all elements in row-major order; 0 if they could not be read |
|      8 | numel   | uint64  | elements; 2**64 - 1 in the record of a tensor that does not exist |
|     16 | nan     | uint64  | NaN elements |
|     24 | inf     | uint64  | infinite elements, of both signs |
|     32 | minimum | float64 | of the finite elements; NaN if there is none |
|     40 | maximum | float64 | of the finite elements; NaN if there is none |
|     48 | mean    | float64 | sum of the finite elements / their number; NaN if there is none |
|     56 | l2      | float64 | square root of the sum of squares of the finite elements; 0 if there is none |

The statistics of a complex tensor are those of its real and imaginary parts; `numel` is the number of complex elements.
For dtypes without statistics (float8, quantized) minimum, maximum, mean and l2 are NaN.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import astuple, dataclass

_RECORD = struct.Struct("<QQQQdddd")
_NO_TENSOR = 2**64 - 1

RECORD_BYTES = _RECORD.size


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of one tensor. Equal hashes mean equal bits only for tensors of the same dtype and shape."""

    hash: int
    numel: int
    nan: int
    inf: int
    minimum: float
    maximum: float
    mean: float
    l2: float

    @property
    def absent(self) -> bool:
        """True if there was no tensor, as for the gradient of an unused parameter."""
        return self.numel == _NO_TENSOR

    @property
    def readable(self) -> bool:
        """True if there was a tensor and it had values. A meta or fake tensor has none."""
        return self.hash != 0


def unreadable(numel: int) -> Digest:
    """Return the digest of a tensor without values."""
    return Digest(0, numel, 0, 0, math.nan, math.nan, math.nan, math.nan)


def pack(digest: Digest) -> bytes:
    """Return the record of one digest, RECORD_BYTES long."""
    return _RECORD.pack(*astuple(digest))


def unpack(record: bytes | memoryview) -> Digest:
    """Return the digest in one record of exactly RECORD_BYTES bytes."""
    return Digest(*_RECORD.unpack(record))


def iter_unpack(records: bytes) -> Iterator[Digest]:
    """Yield the digests in consecutive records. Raises struct.error for an incomplete record."""
    for fields in _RECORD.iter_unpack(records):
        yield Digest(*fields)


ABSENT = pack(unreadable(_NO_TENSOR))
