"""What values are compared by: a digest of their bytes."""

from __future__ import annotations

import hashlib

import torch

from .. import torch_private
from .journal_writing import bytes_of

SIZE = 16
"""Bytes of a digest."""


def digest_of(tensor: torch.Tensor) -> str:
    """SHA-256, its first 32 hex digits, of the tensor's values in the order of its dimensions, whatever its strides."""
    with torch_private.bare_execution(), torch.no_grad():
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(bytes_of(data)).hexdigest()[: 2 * SIZE]
