"""Large values that lie in a file, so that the tape of a large model takes little memory.

The values are tensors on a private mapping of the file. The operating system reads a page of it when the page is used,
and `give_back_pages` removes pages from the process's memory again:

    replay of a step        memory of the process
    read input 7            input 7, from the file
    copy it                 input 7 and its copy
    give_back_pages         its copy

Whoever writes to such a tensor gets a page of its own, and the file stays as it is.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

LARGE = 1 << 20
"""The number of bytes from which on a value is large."""

IN_MEMORY = 1 << 29
"""The bytes of large values that a step keeps in memory before it uses a file. Most models are smaller."""

CHUNK = 1 << 30
"""The number of bytes by which the file grows. Each chunk is one mapping, and has one descriptor."""

WITHOUT_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Linux's flag for a private mapping that nobody intends to write to. Python has a name for it since 3.13."""

_mappings: dict[int, tuple[int, weakref.ref[mmap.mmap]]] = {}  # by address: the number of bytes, and the mapping


def mapping_of(descriptor: int, start: int, size: int) -> mmap.mmap:
    """Return a private mapping of `size` bytes of a file. `start` is a multiple of the page size. Raises OSError."""
    flags, protection = mmap.MAP_PRIVATE | WITHOUT_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    mapping = mmap.mmap(descriptor, size, flags=flags, prot=protection, offset=start)
    for address, (_, other) in list(_mappings.items()):
        if other() is None:
            del _mappings[address]
    _mappings[tensor_in(mapping, 0, torch.uint8, (size,)).data_ptr()] = size, weakref.ref(mapping)
    return mapping


def tensor_in(mapping: mmap.mmap, start: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor on the bytes of a mapping from `start` on. It keeps the mapping."""
    return torch.frombuffer(mapping, dtype=dtype, count=math.prod(shape), offset=start).view(tuple(shape))


def give_back_pages(tensor: torch.Tensor) -> None:
    """Remove the pages of a tensor that lies in a file from the memory of the process; do nothing for any other.

    The next use reads them from the file again.
    """
    size = tensor.numel() * tensor.element_size()
    if size < LARGE or not tensor.is_cpu:
        return
    address = tensor.data_ptr()
    for first, (length, reference) in _mappings.items():
        mapping = reference()
        if mapping is not None and first <= address < first + length:
            begin = (address - first) // mmap.PAGESIZE * mmap.PAGESIZE
            mapping.madvise(mmap.MADV_DONTNEED, begin, min(address - first + size, length) - begin)


class LargeValues:
    """Copies of the values of a step: in memory, and in a file of a folder once they take more than `in_memory` bytes.

    The file has no name and is gone when the last of its tensors is. Without a folder, or if the disk is full, all
    copies are in memory.
    """

    def __init__(self, folder: Path | None = None, in_memory: int = IN_MEMORY) -> None:
        self._folder = folder
        self._left = in_memory
        self._file: Any = None
        self._mapping: mmap.mmap | None = None
        self._mapped_from = 0  # the place of the mapping in the file
        self._end = 0  # of the values in the file

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the CPU."""
        value = tensor.detach()
        size = value.numel() * value.element_size()
        is_plain = value.layout == torch.strided and not value.is_conj() and not value.is_neg()
        if size < LARGE or self._folder is None or not is_plain or not value.is_contiguous():
            return value.to("cpu", copy=True)
        if size <= self._left:
            self._left -= size
            return value.to("cpu", copy=True)
        try:
            return self._in_file(value.cpu(), size)
        except OSError:  # the disk is full
            self._folder = None
            return value.to("cpu", copy=True)

    def _in_file(self, value: torch.Tensor, size: int) -> torch.Tensor:
        if self._file is None:
            assert self._folder is not None
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115, it stays open for the next values
            weakref.finalize(self, self._file.close)
        descriptor, start = self._file.fileno(), self._end
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._mapping is None or start + size > self._mapped_from + len(self._mapping):
            length = max(CHUNK, room)
            os.truncate(descriptor, start + length)  # without the bytes themselves, which take no room yet
            self._mapping, self._mapped_from = mapping_of(descriptor, start, length), start
        content, written = memoryview((ctypes.c_char * size).from_address(value.data_ptr())).cast("B"), 0
        while written < size:
            written += os.pwrite(descriptor, content[written:], start + written)
        self._end = start + room
        return tensor_in(self._mapping, start - self._mapped_from, value.dtype, value.size())
