"""What a redacted bundle has in place of tensors: their digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from ...records.codec import json_text
from ...runs.journal import Array
from ...runs.mapped_tensors import read_tensor_file

SUFFIX = ".digests.json"


def digests_of(path: Path) -> bytes:
    """The digests of a tensor file as JSON: of each tensor dtype, shape, SHA-256 of its bytes, and its
    statistics.

    The file's facts stay, among them the calls of a snapshot. Raises JournalError for a file that cannot be
    read."""
    file = read_tensor_file(path)
    described = {
        name: {"dtype": file.dtypes[name], "shape": list(array.shape), **_digest(array)}
        for name, array in file.tensors.items()
    }
    return json_text(
        {"schema": 1, "redacted": path.name, "tensors": described, "facts": dict(file.facts)}
    ).encode()


def _digest(array: Array) -> dict[str, Any]:
    """min, max, mean and L2 norm are of the finite elements, in float64; None where there are none."""
    facts: dict[str, Any] = {"sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
    parts = (
        array.view(np.float64 if array.dtype == np.complex128 else np.float32)
        if array.dtype.kind == "c"
        else array
    )
    numbers = np.asarray(parts, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    facts |= {"nan": int(np.isnan(numbers).sum()), "inf": int(np.isinf(numbers).sum())}
    if finite.size:
        return facts | {
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
            "l2": float(np.sqrt((finite * finite).sum())),
        }
    return facts | dict.fromkeys(("min", "max", "mean", "l2"))
