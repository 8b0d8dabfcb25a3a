"""STUB: the native helper replaces this file, keeping these names and signatures."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def elementwise(
    name: str, tensors: Sequence[torch.Tensor], scalars: Sequence[float] = ()
) -> torch.Tensor | None:
    """Call a C kernel element by element, on broadcast operands. None where it cannot serve: no compiler, another
    device or dtype than the kernel's, tensors without storage (lazy, meta, fake)."""
    return None


def rows(name: str, matrix: torch.Tensor) -> torch.Tensor | None:
    """Call a C kernel that reduces each row of a contiguous [rows, columns] matrix to one number -> [rows]."""
    return None
