"""Tensors in one file, written and read by the guests; see tensor_layout for what the file looks like."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ..errors import JournalError
from ..records.tensor_layout import TORCH_NAMES, TensorPlace, build_header, read_header
from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from .journal_writing import AppendFile, bytes_of

TRUE_DTYPES = "dtypes"
"""The fact that names the dtypes of tensors which a file holds widened to float32."""

CODES = {getattr(torch, name): code for code, name in TORCH_NAMES.items() if hasattr(torch, name)}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Write a file, all of it or nothing; an existing one is replaced. Raises OSError (disk full).

    Tensors are taken one after the other: what is contiguous on the CPU is not copied, anything else briefly.
    Sparse tensors are written dense; a dtype that files do not know is widened to float32, and the fact
    `dtypes` says what it was.
    """
    widened = {name: _name(tensor.dtype) for name, tensor in tensors.items() if tensor.dtype not in CODES}
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
                file.append([bytes_of(_storable(tensors[name]))])
        file.close()
        temporary.replace(path)
    except BaseException:
        file.close()
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read a file's tensors, each in memory of its own, and its facts. Raises JournalError."""
    try:
        with path.open("rb") as file, without_dispatch_modes(), without_function_modes(), torch.no_grad():
            entries, facts = read_header(path, file)
            tensors = {entry.name: _read(path, file, entry) for entry in entries}
    except OSError as error:
        raise JournalError(path, f"cannot be read: {error.strerror}") from error
    # The widened tensors that can be given their dtype back: quantized ones stay numbers
    named = facts.get(TRUE_DTYPES)
    found = {
        name: getattr(torch, dtype, None)
        for name, dtype in (named.items() if isinstance(named, dict) else ())
        if isinstance(dtype, str)
    }
    true_dtypes = {
        name: dtype for name, dtype in found.items() if isinstance(dtype, torch.dtype) and dtype.is_floating_point
    }
    for name, true in true_dtypes.items():
        if name in tensors:
            tensors[name] = tensors[name].to(true)
    return tensors, facts


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _storable(tensor: torch.Tensor) -> torch.Tensor:
    value = tensor.cpu()
    if value.is_quantized:
        value = value.dequantize()
    if value.layout != torch.strided:
        value = value.to_dense()
    return value if value.dtype in CODES else value.float()


def _read(path: Path, file: BinaryIO, entry: TensorPlace) -> torch.Tensor:
    dtype = getattr(torch, TORCH_NAMES[entry.dtype], None)
    if dtype is None:
        raise JournalError(path, f"{entry.name!r} is of a dtype that torch {torch.__version__} does not have")
    try:
        tensor = torch.empty(entry.shape, dtype=dtype, device="cpu")
    except RuntimeError as error:
        raise JournalError(path, f"{entry.name!r} cannot be made: {str(error).splitlines()[0]}") from error
    file.seek(entry.start)
    buffer = memoryview(bytes_of(tensor)).cast("B")
    if not buffer.readonly and file.readinto(buffer) != entry.end - entry.start:  # type: ignore[attr-defined]
        raise JournalError(path, f"was cut off while it was read, at {entry.name!r}")
    return tensor
