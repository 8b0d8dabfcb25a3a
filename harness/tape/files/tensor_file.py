"""Guests write and read files of tensors with this module. records/values/tensor_layout.py describes the format."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...errors import JournalError
from ...records.values.tensor_layout import ALIGNMENT, TORCH_NAMES, TensorPlace, build_header, read_header
from ...torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..large_values import LARGE, give_back_pages, mapping_of, tensor_in
from ..tape_arguments import name_of
from .journal_writing import AppendFile, bytes_of

TRUE_DTYPES = "dtypes"
"""The name of the fact with the original dtypes of the tensors that were widened to float32 for a file."""

CODES = {getattr(torch, name): code for code, name in TORCH_NAMES.items() if hasattr(torch, name)}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Write a file atomically. An existing file is replaced. Raises OSError, for example if the disk is full.

    Tensors are written one after the other. A contiguous tensor on the CPU is not copied. The copy of any other tensor
    is freed before the next copy is made. Sparse tensors are written as dense ones. A tensor whose dtype the format
    lacks is widened to float32, and the original dtype is written to the fact `dtypes`.
    """
    widened = {name: name_of(tensor.dtype) for name, tensor in tensors.items() if tensor.dtype not in CODES}
    header, order = build_header(
        {name: (CODES.get(tensor.dtype, "F32"), tuple(tensor.shape)) for name, tensor in tensors.items()},
        {**facts, **({TRUE_DTYPES: widened} if widened else {})},
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
    mapping: mmap.mmap | None = None
    try:
        with path.open("rb") as file, without_dispatch_modes(), without_function_modes(), torch.no_grad():
            entries, facts = read_header(path, file)
            if maps and any(_can_be_mapped(entry) for entry in entries):
                with suppress(OSError):  # a file system without mappings
                    mapping = mapping_of(file.fileno(), 0, entries[-1].end)
            for entry in entries:
                dtype = getattr(torch, TORCH_NAMES[entry.dtype], None)
                if dtype is None:
                    version = torch.__version__
                    raise JournalError(path, f"{entry.name!r} has a dtype that torch {version} lacks")
                if mapping is not None and _can_be_mapped(entry):
                    tensors[entry.name] = tensor_in(mapping, entry.start, dtype, entry.shape)
                    continue
                try:
                    tensor = torch.empty(entry.shape, dtype=dtype, device="cpu")
                except RuntimeError as error:
                    raise JournalError(
                        path, f"{entry.name!r} cannot be created: {str(error).splitlines()[0]}"
                    ) from error
                # Read directly into the tensor's memory; skip an empty tensor, whose buffer is read-only.
                file.seek(entry.start)
                buffer = memoryview(bytes_of(tensor)).cast("B")
                if not buffer.readonly and file.readinto(buffer) != entry.end - entry.start:
                    raise JournalError(path, f"was cut off while it was read, at {entry.name!r}")
                tensors[entry.name] = tensor
    except OSError as error:
        raise JournalError(path, f"cannot be read: {error.strerror}") from error
    # Widened tensors are converted back to their original dtype, except for quantized tensors, which stay float32.
    named = facts.get(TRUE_DTYPES)
    for name, dtype in named.items() if isinstance(named, dict) else ():
        true = getattr(torch, dtype, None) if isinstance(dtype, str) else None
        if isinstance(true, torch.dtype) and true.is_floating_point and name in tensors:
            tensors[name] = tensors[name].to(true)
    return tensors, facts


def _can_be_mapped(entry: TensorPlace) -> bool:
    return entry.end - entry.start >= LARGE and entry.start % ALIGNMENT == 0
