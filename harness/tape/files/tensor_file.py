"""Guests write and read files of tensors with this module. records/values/tensor_layout.py describes the format."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...errors import JournalError
from ...records.values.tensor_layout import ALIGNMENT, ELSEWHERE, TORCH_NAMES, TensorPlace, build_header, read_places
from ...torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..large_values import LARGE, give_back_pages, mapping_of, tensor_in
from ..tape_arguments import name_of
from .earlier_values import linked_values
from .journal_writing import AppendFile, bytes_of

TRUE_DTYPES = "dtypes"
"""The name of the fact with the original dtypes of the tensors that were widened to float32 for a file."""

CODES = {getattr(torch, name): code for code, name in TORCH_NAMES.items() if hasattr(torch, name)}


def write_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], earlier: Sequence[Path] = ()
) -> None:
    """Write a file atomically. An existing file is replaced. Raises OSError, for example if the disk is full.

    Tensors that one of the files `earlier` has, bit for bit, are not written again, unless they are small (see
    `earlier_values`).

    Tensors are written one after the other. A contiguous tensor on the CPU is not copied. The copy of any other tensor
    is freed before the next copy is made. Sparse tensors are written as dense ones. A tensor whose dtype the format
    lacks is widened to float32, and the original dtype is written to the fact `dtypes`.
    """
    with without_dispatch_modes(), without_function_modes(), torch.no_grad():
        elsewhere = linked_values(path.parent, tensors, CODES, earlier)
    widened = {name: name_of(tensor.dtype) for name, tensor in tensors.items() if tensor.dtype not in CODES}
    own = {name: tensor for name, tensor in tensors.items() if name not in elsewhere}
    header, order = build_header(
        {name: (CODES.get(tensor.dtype, "F32"), tuple(tensor.shape)) for name, tensor in own.items()},
        {**facts, **({TRUE_DTYPES: widened} if widened else {}), **({ELSEWHERE: elsewhere} if elsewhere else {})},
    )
    temporary = path.with_name(f"{path.name}.part")
    temporary.unlink(missing_ok=True)
    file = AppendFile(temporary)
    try:
        with without_dispatch_modes(), without_function_modes(), torch.no_grad():
            file.append([header])
            for name in order:
                value = tensors[name].cpu()
                if value.is_quantized:
                    value = value.dequantize()
                if value.layout != torch.strided:
                    value = value.to_dense()
                file.append([bytes_of(value if value.dtype in CODES else value.float())])
                give_back_pages(value)
                del value  # free the copy before the next copy is made: there may be too little memory for two
        file.close()
        temporary.replace(path)
    except BaseException:
        file.close()
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_tensors(path: Path, *, maps: bool = False) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read a file's tensors, each into its own memory, and the file's facts. Raises JournalError.

    With `maps`, large tensors stay in the file (see `large_values`). Their memory is aligned as kernels need it: some
    compute other bits on data that is not.
    """
    tensors: dict[str, torch.Tensor] = {}
    with without_dispatch_modes(), without_function_modes(), torch.no_grad():
        places, facts = read_places(path)
        for file, places_there in places.items():
            try:
                tensors |= _read(file, places_there, maps=maps)
            except OSError as error:
                raise JournalError(file, f"cannot be read: {error.strerror}") from error
    # Widened tensors are converted back to their original dtype, except for quantized tensors, which stay float32.
    named = facts.get(TRUE_DTYPES)
    for name, dtype in named.items() if isinstance(named, dict) else ():
        true = getattr(torch, dtype, None) if isinstance(dtype, str) else None
        if isinstance(true, torch.dtype) and true.is_floating_point and name in tensors:
            tensors[name] = tensors[name].to(true)
    return tensors, facts


def _read(path: Path, places: Sequence[TensorPlace], *, maps: bool) -> dict[str, torch.Tensor]:
    """Read these tensors of one file. Raises JournalError and OSError."""
    tensors: dict[str, torch.Tensor] = {}
    mapping: mmap.mmap | None = None
    with path.open("rb") as file:
        if maps and any(_can_be_mapped(place) for place in places):
            with suppress(OSError):  # a file system without mappings
                mapping = mapping_of(file.fileno(), 0, max(place.end for place in places))
        for place in places:
            dtype = getattr(torch, TORCH_NAMES[place.dtype], None)
            if dtype is None:
                raise JournalError(path, f"{place.name!r} has a dtype that torch {torch.__version__} lacks")
            if mapping is not None and _can_be_mapped(place):
                tensors[place.name] = tensor_in(mapping, place.start, dtype, place.shape)
                continue
            try:
                tensor = torch.empty(place.shape, dtype=dtype, device="cpu")
            except RuntimeError as error:
                raise JournalError(path, f"{place.name!r} cannot be created: {str(error).splitlines()[0]}") from error
            # Read directly into the tensor's memory; skip an empty tensor, whose buffer is read-only.
            file.seek(place.start)
            buffer = memoryview(bytes_of(tensor)).cast("B")
            if not buffer.readonly and file.readinto(buffer) != place.size:
                raise JournalError(path, f"was cut off while it was read, at {place.name!r}")
            tensors[place.name] = tensor
    return tensors


def _can_be_mapped(place: TensorPlace) -> bool:
    return place.size >= LARGE and place.start % ALIGNMENT == 0
