"""The four floating dtypes as exact arithmetic, and tensors compared with what it gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

from .native.arithmetic import FLOAT32, FLOAT64, Arithmetic

BFLOAT16 = Arithmetic("bfloat16", precision=8, last_place=-133, overflow=128)
FLOAT16 = Arithmetic("float16", precision=11, last_place=-24, overflow=16)
NARROW = [FLOAT32, BFLOAT16, FLOAT16]
ARITHMETICS = {
    torch.float32: FLOAT32,
    torch.float64: FLOAT64,
    torch.bfloat16: BFLOAT16,
    torch.float16: FLOAT16,
}


def as_tensors(arithmetic: Arithmetic, points: Sequence[tuple[float, ...]]) -> list[torch.Tensor]:
    """One tensor for each place in the points, of the arithmetic's dtype."""
    dtype = getattr(torch, arithmetic.dtype)
    return [torch.tensor(column, dtype=torch.float64).to(dtype) for column in zip(*points, strict=True)]


def assert_same(got: torch.Tensor, expected: Iterable[float]) -> None:
    """Equal values, zeros with equal signs, and NaN in the same places."""
    wrong = [
        (at, a.hex(), b.hex())
        for at, (a, b) in enumerate(zip(got.tolist(), expected, strict=True))
        if not (a == b and math.copysign(1, a) == math.copysign(1, b)) and not (math.isnan(a) and math.isnan(b))
    ]
    assert not wrong, wrong[:5]
