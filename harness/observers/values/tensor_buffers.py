"""The memory of a step's tensors as buffers that can be written to a file."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from ...tape.files.journal_writing import bytes_of


class TensorBuffers:
    """The buffers of one step's tensors after the other. They are made anew only if a tensor's memory has moved.

    To make a buffer takes longer than to write a small one. The buffers do not keep the memory alive: use them while
    the tensors exist.

    size: the bytes of all buffers
    pickled: the bytes of the tensors in a pickle
    """

    def __init__(self) -> None:
        self.size = self.pickled = 0
        self._places: list[tuple[Any, ...]] = []
        self._buffers: list[Any] = []

    def of(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return a buffer with the elements of each CPU tensor in row-major order."""
        places: list[tuple[Any, ...]] = [
            (tensor.data_ptr(), tensor.numel(), tensor.dtype, tensor.is_contiguous(), tensor.is_neg())
            for tensor in tensors
        ]
        if places == self._places:
            return [
                bytes_of(tensor) if buffer is None else buffer
                for tensor, buffer in zip(tensors, self._buffers, strict=True)
            ]
        buffers = [bytes_of(tensor) for tensor in tensors]
        self.size = sum(len(buffer) for buffer in buffers)
        self.pickled = sum(pickled_bytes(tensor) for tensor in tensors)
        self._places, self._buffers = places, [_buffer_at(*place) for place in places]
        return buffers


def _buffer_at(address: int, numel: int, dtype: torch.dtype, is_contiguous: bool, is_neg: bool) -> Any:
    """Return a buffer with a tensor's memory, None if the tensor's elements must be copied or there are none."""
    if not numel or not is_contiguous or is_neg or dtype.is_complex:
        return None
    return (ctypes.c_char * (numel * dtype.itemsize)).from_address(address)


def pickled_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor in a pickle, where numbers of a dtype that NumPy lacks are wider."""
    dtype = tensor.dtype
    is_narrow = dtype.is_floating_point and dtype.itemsize <= 2 and dtype != torch.float16
    return tensor.numel() * (4 if is_narrow else 8 if dtype == torch.complex32 else dtype.itemsize)
