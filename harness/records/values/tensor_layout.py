"""The layout of tensor files. It is the layout of safetensors, so any reader of safetensors can open the files.

    8 bytes       length of the header, little-endian
    the header    JSON: {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {"numdrift": facts as JSON}}
    the tensors   their elements in row-major order, one after the other without a gap

A value that an earlier file has may be left out. The fact `elsewhere` then says where it is, beside the file.

This module imports neither torch nor NumPy, since the recorder and the readers share it. The dtype C128 (complex128) is
numdrift's own; other readers may refuse files with it.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import JournalError

LENGTH = struct.Struct("<Q")
ALIGNMENT = 64
"""The header is padded so that the first tensor begins at a multiple of this number of bytes.

Tensors whose bytes are a multiple of it come first, so each of them begins at one as well. Kernels may compute other
bits on memory that begins elsewhere."""

MOST_HEADER = 100_000_000
"""The largest number of bytes that a header may have. It is the limit of safetensors itself."""

MOST_DIMENSIONS = 64
"""The largest number of dimensions that a shape may have. It is the limit of torch and NumPy."""

MOST_ELEMENTS = 2**63 - 1
"""The largest number of elements that a dimension may have. It is the limit of torch."""

METADATA = "__metadata__"
FACTS = "numdrift"

ELSEWHERE = "elsewhere"
"""The fact with the places of values that another file has: by the tensor's name, the name of the other file, the name
of the value in it, and the tensor's dtype and shape (see tape/files/earlier_values.py)."""

LINKED = re.compile(r"earlier-\d+\.safetensors")
"""The names of these other files. Each is in the folder of the file that names it."""

TORCH_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "C128": "complex128",
}
"""torch's name for each dtype that a file can contain, by the name that the file uses for the dtype."""

ITEM_BYTES = {code: {"BOOL": 1, "BF16": 2}.get(code) or int(code.lstrip("FIUC")) // 8 for code in TORCH_NAMES}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor in a file: its `dtype` in the file's own words, and the place of its bytes, from `start` to `end`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.start


def build_header(tensors: Mapping[str, tuple[str, Sequence[int]]], facts: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    """Return a file's bytes up to the first tensor, and the tensors' names in the order in which their bytes follow.

    `tensors` maps names to dtype and shape. First come the tensors with whole multiples of ALIGNMENT bytes. Of the
    others, those with wider dtypes come first, so that each of their elements is aligned.
    """
    sizes = {name: math.prod(shape) * ITEM_BYTES[dtype] for name, (dtype, shape) in tensors.items()}
    # the sort is stable: tensors for which the key is the same stay in order
    order = sorted(tensors, key=lambda name: (sizes[name] % ALIGNMENT > 0, -ITEM_BYTES[tensors[name][0]]))
    described: dict[str, Any] = {METADATA: {FACTS: json.dumps(facts, separators=(",", ":"))}}
    position = 0
    for name in order:
        if name == METADATA:
            raise ValueError(f"{METADATA} cannot be a tensor's name: it is the key of a file's facts")
        dtype, shape = tensors[name]
        end = position + sizes[name]
        described[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH.size + len(text)) % ALIGNMENT)
    return LENGTH.pack(len(text)) + text, order


def read_header(path: Path, file: BinaryIO) -> tuple[list[TensorPlace], dict[str, Any]]:
    """Read the tensors' places, in the order of their bytes, and the file's facts. `file` must be at its beginning.

    Raises JournalError unless the tensors fill the rest of the file exactly.
    """
    size = os.fstat(file.fileno()).st_size
    begin = file.read(LENGTH.size)
    length = LENGTH.unpack(begin)[0] if len(begin) == LENGTH.size else size
    first = LENGTH.size + length
    if first > size or length > MOST_HEADER:
        raise JournalError(path, f"is not a tensor file, or is truncated: it ends after {size} bytes")
    try:
        described = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_once_each)
        facts = json.loads((described.pop(METADATA, None) or {}).get(FACTS, "{}"))
        if not isinstance(facts, dict):
            raise TypeError("its facts are not an object")
        entries = [_entry(name, description, first) for name, description in described.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        complaint = (str(error).splitlines() or [""])[0][:200]
        raise JournalError(path, f"has a damaged header ({type(error).__name__}: {complaint})") from error
    # an empty tensor begins at the same byte as the next tensor, so the sort key includes the end
    entries.sort(key=lambda entry: (entry.start, entry.end))
    position = first
    for entry in entries:
        if entry.start != position:
            raise JournalError(
                path, f"has a damaged header: {entry.name!r} begins at byte {entry.start}, not {position}"
            )
        position = entry.end
    if position != size:
        raise JournalError(path, f"has {size} bytes, but its header says {position}")
    return entries, facts


def read_places(path: Path) -> tuple[dict[Path, list[TensorPlace]], dict[str, Any]]:
    """Read the places of a tensor file's values, by the file that has them, and the file's facts.

    The first file is `path` itself. The others are files beside it, in which it found values when it was written.
    Raises JournalError if one of the files is damaged, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            own, facts = read_header(path, file)
        places, named = {path: own}, facts.get(ELSEWHERE, {})
        of_linked: dict[Path, dict[str, TensorPlace]] = {}
        for name, (linked, name_in_linked, dtype, shape) in named.items():
            if not isinstance(linked, str) or not LINKED.fullmatch(linked):
                raise ValueError(f"{name!r} is in the file {linked!r}, which cannot be beside this one")
            beside = path.with_name(linked)
            if beside not in of_linked:
                with beside.open("rb") as file:
                    of_linked[beside] = {place.name: place for place in read_header(beside, file)[0]}
            place = of_linked[beside][name_in_linked]
            offsets = [place.start, place.end]
            described = _entry(name, {"dtype": dtype, "shape": shape, "data_offsets": offsets}, 0)
            places.setdefault(beside, []).append(described)
    except OSError as error:
        raise JournalError(Path(error.filename or path), f"cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        complaint = (str(error).splitlines() or [""])[0][:200]
        raise JournalError(path, f"has a damaged header ({type(error).__name__}: {complaint})") from error
    return places, facts


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) != len(pairs):
        raise ValueError("a name occurs twice")
    return by_name


def _entry(name: str, described: Mapping[str, Any], first: int) -> TensorPlace:
    """Read a tensor's entry. `first` is the byte at which the first tensor begins.

    Raises ValueError, TypeError or KeyError.
    """
    dtype, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TORCH_NAMES:
        raise ValueError(f"{name!r} has the unknown dtype {dtype!r}")
    if not _whole_numbers(shape) or len(shape) > MOST_DIMENSIONS or max(shape, default=0) > MOST_ELEMENTS:
        raise ValueError(f"{name!r} has an invalid shape")
    if not _whole_numbers(offsets) or len(offsets) != 2:
        raise ValueError(f"{name!r} has invalid offsets")
    start, end = offsets
    if end - start != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError(f"{name!r} has {end - start} bytes, which does not match its shape and dtype")
    return TensorPlace(name, dtype, tuple(shape), first + start, first + end)


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
