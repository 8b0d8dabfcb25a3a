"""Sharded tensors: the part that this rank holds, and its position in the whole.

Nothing is gathered and no collective is started: a rank records only its own part.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import NotAvailable
from ..records.values.sketch_record import Shard
from ..torch_private.accelerators import shard_offset


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a DTensor."""
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(tensor, loaded.DTensor)


def some_are_sharded(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a DTensor is among the tensors."""
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and any(issubclass(kind, loaded.DTensor) for kind in set(map(type, tensors)))


def shard_of(tensor: torch.Tensor) -> Shard | None:
    """Return the position of this rank's part in a DTensor, None for any other tensor."""
    if not is_sharded(tensor):
        return None
    spread: Any = tensor
    placements = tuple(_word(placement) for placement in spread.placements)
    offset: tuple[int, ...] | None = None
    if "other" not in placements:
        try:
            offset = shard_offset(spread)
        except NotAvailable:
            offset = None
    mesh = spread.device_mesh
    at = mesh.get_coordinate()
    return Shard(tuple(tensor.shape), offset, placements, tuple(mesh.shape), tuple(at or ()))


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a DTensor, any other tensor as it is. The result shares the tensor's memory."""
    if not is_sharded(tensor):
        return tensor
    spread: Any = tensor
    with torch.no_grad():
        local: torch.Tensor = spread.to_local()
        wait = getattr(local, "wait", None)  # a collective of the script may still be running
        return (local if wait is None else wait()).detach()


def own_part(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a whole `value` if `target` is sharded.

    Any other value, such as one that already is this rank's part, is returned unchanged.
    """
    shard = shard_of(target)
    if shard is None or shard.offset is None or tuple(value.shape) != shard.whole:
        return value
    sizes = local_tensor(target).shape
    return value[tuple(slice(first, first + size) for first, size in zip(shard.offset, sizes, strict=True))]


def _word(placement: Any) -> str:
    """Return a placement in words, `other` for an unknown placement."""
    kind = type(placement).__name__
    if kind == "Shard":
        return f"shard {placement.dim}"
    if kind == "Partial":
        return f"partial {placement.reduce_op}"
    return "replicate" if kind == "Replicate" else "other"
