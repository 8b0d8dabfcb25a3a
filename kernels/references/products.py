"""Matrix products whose sums are as accurate as if computed with twice the digits of float64.

Products of numbers that were float32 or narrower are exact in float64; their sum is compensated.
"""

from __future__ import annotations

import torch

from .reductions import compensated

Tensor = torch.Tensor

CHUNK = 1 << 22
"""Products that are held at once."""


def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """[M, K] @ [K, N] in float64."""
    inner, columns = mat2.shape
    if inner == 0 or columns == 0 or self.shape[0] == 0:
        return self @ mat2
    rows = max(1, CHUNK // (inner * columns))
    right = mat2.t().unsqueeze(0)
    parts = [
        compensated((part.unsqueeze(1) * right).reshape(-1, inner)).reshape(-1, columns)
        for part in self.split(rows)
    ]
    return torch.cat(parts)


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """[B, M, K] @ [B, K, N] in float64."""
    if self.shape[0] == 0:
        return self @ mat2
    return torch.stack([mm(left, right) for left, right in zip(self, mat2, strict=True)])


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2) in float64."""
    product = alpha * mm(mat1, mat2)
    return product if beta == 0 else beta * self + product
