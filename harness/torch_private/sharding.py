"""Where a rank's part of a DTensor lies, which torch says only in private."""

from __future__ import annotations

from typing import Any

from .presence import private


def shard_offset(tensor: Any) -> tuple[int, ...]:
    """The global index of the first element of this rank's part of a DTensor, one number a dimension.

    Computed from shape, mesh and placements; no collective is started.
    """
    compute = private("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset")
    _, offset = compute(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(int(one) for one in offset)
