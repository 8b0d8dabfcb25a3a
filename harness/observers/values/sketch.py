"""Linear sketches of tensors and of parts of tensors, as defined in `sketch_record`."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...compiler import CSource, compile_library
from ...errors import NumdriftError
from ...records.values.sketch_record import BLOCK, GOLDEN, NUMBERS, SEED, Sketch, added
from ...torch_private.dispatching import unseen
from .digest_hash import mix64_tensor, signed

# No -ffast-math of any kind: the compensation of the sums would be optimised away.
SOURCE = CSource(
    Path(__file__).with_name("sketch.c"),
    flags=("-O3", "-ffp-contract=off", "-Wno-psabi", "-shared", "-fPIC"),
    tunings=(("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ()),
)

KINDS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
"""dtype -> row of `kinds` in sketch.c; other dtypes are first converted to float64."""

MOST_DIMENSIONS = 64

PART = 128 * BLOCK
"""The number of elements that the torch implementation processes at a time; each takes about thirty int64 numbers."""


class Sketcher:
    """Sketches tensors. `native=False` computes the same numbers with torch operations, up to float64 rounding."""

    def __init__(self, *, native: bool = True) -> None:
        self._function: Callable[..., None] | None = None
        self.reason: str | None = "not requested"
        if not native:
            return
        try:
            function: Any = ctypes.CDLL(str(compile_library(SOURCE).path)).numdrift_sketch
        except (NumdriftError, OSError, AttributeError) as error:
            self.reason = " ".join(str(error).split())
            return
        number, pointer = ctypes.c_uint64, ctypes.c_void_p
        function.argtypes = [pointer, number, number, number, number, pointer, pointer, pointer]
        function.restype = None
        self._function, self.reason = function, None

    def sketch(
        self, tensor: torch.Tensor, whole: Sequence[int] | None = None, offset: Sequence[int] | None = None
    ) -> Sketch | None:
        """Return the sketch of a tensor, or of a block of a larger tensor.

        The larger tensor has the shape `whole`, and the block begins at its index `offset`. Return None if the
        tensor has no readable values. Raises ValueError for a block that is not inside the whole.
        """
        with unseen():
            plain = _plain(tensor)
            if plain is None:
                return None
            shape = tuple(plain.shape)
            whole = shape if whole is None else tuple(whole)
            offset = (0,) * len(whole) if offset is None else tuple(offset)
            if tensor.is_complex() and len(shape) == len(whole) + 1:
                whole, offset = (*whole, 2), (*offset, 0)  # a last dimension holds the real and imaginary parts
            fits = len(shape) == len(whole) == len(offset) and all(
                begin >= 0 and begin + size <= length for size, length, begin in zip(shape, whole, offset, strict=True)
            )
            if not fits and plain.numel():
                raise ValueError(f"a block {list(shape)} at {list(offset)} is not inside a tensor {list(whole)}")
            if not plain.numel():
                return (0.0,) * NUMBERS
            if self._function is None or len(shape) > MOST_DIMENSIONS:
                return _sketch_with_torch(plain, whole, offset)
            # A block consists of contiguous runs of the whole, repeated along its outer dimensions: [2, 3, 4] in [9, 9,
            # 4] is 2 runs of 3 * 4 elements. A dimension is part of the run if the block covers all later dimensions
            # completely.
            strides = _strides(whole)
            start = sum(begin * stride for begin, stride in zip(offset, strides, strict=True))
            inner = len(shape)
            while inner and (inner == len(shape) or shape[inner] == whole[inner]):
                inner -= 1
            run = math.prod(shape[inner:])
            outer, steps = array("Q", shape[:inner]), array("Q", strides[:inner])
            out = array("d", [0.0] * NUMBERS)
            pointers = [buffer.buffer_info()[0] for buffer in (outer, steps, out)]
            self._function(plain.data_ptr(), KINDS[plain.dtype], run, start, inner, *pointers)
            return tuple(out)


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the elements as a contiguous real CPU tensor of a dtype in KINDS, with complex numbers as pairs.

    Return None if they cannot be read.
    """
    try:
        if tensor.is_meta:
            return None
        plain = tensor.detach().resolve_conj().resolve_neg()
        plain = torch.view_as_real(plain) if plain.is_complex() else plain
        plain = plain.to_dense() if plain.layout != torch.strided else plain
        plain = plain if plain.dtype in KINDS else plain.to(torch.float64)
        plain = plain.contiguous().cpu()
        return plain if not plain.numel() or plain.data_ptr() else None
    except (RuntimeError, TypeError, ValueError):
        return None


def _strides(whole: Sequence[int]) -> list[int]:
    strides = [1] * len(whole)
    for place in range(len(whole) - 2, -1, -1):
        strides[place] = strides[place + 1] * whole[place + 1]
    return strides


def _sketch_with_torch(plain: torch.Tensor, whole: Sequence[int], offset: Sequence[int]) -> Sketch:
    values, shape, strides = plain.reshape(-1), tuple(plain.shape), _strides(whole)
    parts: list[Sketch] = []
    for begin in range(0, values.numel(), PART):
        part = values[begin : begin + PART].to(torch.float64)
        part = torch.where(part.isfinite(), part, 0.0)  # one NaN would hide all other differences
        # Compute each element's index in the whole from its indices in the block, last dimension first.
        place = torch.arange(begin, begin + part.numel(), dtype=torch.int64, device="cpu")
        index = torch.zeros_like(place)
        for size, begin_index, stride in zip(reversed(shape), reversed(offset), reversed(strides), strict=True):
            index += (place % size + begin_index) * stride
            place = place // size
        bits = mix64_tensor((index + 1) * signed(GOLDEN) + signed(SEED))
        signs = [1.0 - 2.0 * ((bits >> number) & 1) for number in range(NUMBERS)]
        parts.append(tuple(float((sign * part).sum()) for sign in signs))
    return added(parts)
