"""Tensor files for those who analyse a run: read-only NumPy views of the mapped file."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JournalError
from ..records.tensor_layout import TORCH_NAMES, Entry, read_header
from .journal import NUMPY_TYPES, Array, widened


@dataclass(frozen=True, slots=True)
class TensorFile:
    """What a file holds: `dtypes` are torch's names, `facts` what was written down besides.

    bfloat16 stands as the float32 numbers that it is, and so do the rarer types that the writer widened.
    """

    tensors: Mapping[str, Array]
    dtypes: Mapping[str, str]
    facts: Mapping[str, Any]


def read_tensor_file(path: Path) -> TensorFile:
    """Open a file; values are read from disk when they are used. Raises JournalError."""
    try:
        with path.open("rb") as file:
            entries, facts = read_header(path, file)
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    if entries and len(content) < entries[-1].end:
        raise JournalError(path, "was cut off while it was read")
    true = facts.get("dtypes")
    true = true if isinstance(true, dict) else {}
    return TensorFile(
        {entry.name: _view(path, content, entry) for entry in entries},
        {entry.name: str(true.get(entry.name, TORCH_NAMES[entry.dtype])) for entry in entries},
        facts,
    )


def _view(path: Path, content: mmap.mmap, entry: Entry) -> Array:
    dtype = np.dtype(NUMPY_TYPES[TORCH_NAMES[entry.dtype]])
    try:
        array = np.frombuffer(content, dtype, math.prod(entry.shape), entry.start).reshape(entry.shape)
    except (ValueError, OverflowError) as error:
        raise JournalError(path, f"{entry.name!r} cannot be read: {error}") from error
    if entry.dtype != "BF16":
        return array
    array = np.asarray(widened(array))
    array.flags.writeable = False
    return array
