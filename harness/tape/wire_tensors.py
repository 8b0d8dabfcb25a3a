"""Tensors in a message: each is a view of a segment, which holds the bytes of its storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import torch_private
from .slots import bytes_of_storage
from .tape import View
from .tape_arguments import Decoder, Encoder


def described(tensors: Sequence[torch.Tensor | None]) -> tuple[list[Any], list[torch.Tensor]]:
    """Tensors as JSON values and the segments that these refer to. Tensors that share memory do so still.

    Raises ValueError for what is no plain view of memory.
    """
    encoder = Encoder()
    values: list[Any] = []
    segments: list[torch.Tensor] = []
    numbers: dict[int, tuple[int, torch.Tensor]] = {}
    for tensor in tensors:
        if tensor is None:
            values.append(None)
            continue
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise ValueError("a tensor that is sparse, quantized or without values")
        plain = tensor.detach().resolve_conj().resolve_neg()
        address = torch_private.storage_address(plain)
        if address not in numbers:
            numbers[address] = len(segments), plain
            segments.append(bytes_of_storage(plain).cpu())
        offset, size, stride = int(plain.storage_offset()), tuple(plain.size()), tuple(plain.stride())
        values.append(encoder.encode(View(numbers[address][0], plain.dtype, offset, size, stride)))
    return values, segments


def tensors_of(values: Any, segments: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The tensors that `described` has described, on the memory of the segments. Raises ValueError and TypeError."""
    if not isinstance(values, list):
        raise TypeError("tensors that are no list")
    return [None if value is None else _tensor(value, segments) for value in values]


def _tensor(value: Any, segments: Sequence[torch.Tensor]) -> torch.Tensor:
    view = Decoder(_no_generator).decode(value)
    if not isinstance(view, View) or view.slot >= len(segments):
        raise ValueError("a tensor without its bytes")
    segment = segments[view.slot]
    if 0 not in view.size and view.extent * view.dtype.itemsize > segment.numel():
        raise ValueError("a tensor that ends behind its bytes")
    empty = torch.empty(0, dtype=view.dtype, device="cpu")
    try:
        return empty.set_(segment.untyped_storage(), view.offset, view.size, view.stride)
    except RuntimeError as error:
        raise ValueError(f"a tensor that cannot be made: {str(error).splitlines()[0]}") from error


def _no_generator(number: int) -> torch.Tensor:
    raise ValueError(f"generator {number}, which a message does not have")
