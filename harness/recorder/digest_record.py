"""stub"""

import struct
from dataclasses import dataclass

R = struct.Struct("<QQIIdddd")
RECORD_BYTES = R.size
ABSENT = R.pack(0, 2**64 - 1, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Digest:
    hash: int
    numel: int
    nan: int
    inf: int
    minimum: float
    maximum: float
    mean: float
    l2: float

    @property
    def absent(self):
        return self.numel == 2**64 - 1


def iter_unpack(b):
    for t in R.iter_unpack(b):
        yield Digest(*t)
