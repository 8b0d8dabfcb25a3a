"""Fused multiply-add, a*b + c with one rounding, and the error-free transformations that it uses.

Apart from optional C code, everything is written in traceable torch operations: no bit patterns, no branches on values.
This requires a device with float64.

Sources: T. J. Dekker, A floating-point technique for extending the available precision,
Numer. Math. 18, 1971; D. E. Knuth, The Art of Computer Programming, vol. 2, 4.2.2 (TwoSum); S. Boldo and
G. Melquiond, Emulation of a FMA and correctly rounded sums, IEEE Trans. Comput. 57, 2008.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from .native.library import elementwise

_PAST_LARGEST = {torch.float32: 2.0**128, torch.bfloat16: 2.0**128, torch.float16: 2.0**16}
"""The number that would follow a format's largest number if the exponents continued. Values that would be rounded to
this number become infinity."""

_SPLITTER = 2.0**27 + 1


Operand = torch.Tensor | float


def fma(a: Operand, b: Operand, c: Operand) -> torch.Tensor:
    """Compute a*b + c and round once to the common dtype of the tensors among the operands.

    a, b, c: broadcastable tensors, float32, float64, bfloat16 or float16. A Python number is rounded to the common
    dtype, or to float32 for the half formats, as ATen does with an op's scalars. Uses the processor's own instruction
    if there is C code for the operands, and `emulated_fma` otherwise.
    """
    tensors, dtype = _as_tensors((a, b, c))
    in_c = elementwise("fma", tensors) if all(tensor.dtype == dtype for tensor in tensors) else None
    return emulated_fma(a, b, c) if in_c is None else in_c


def emulated_fma(a: Operand, b: Operand, c: Operand) -> torch.Tensor:
    """Compute `fma` with torch operations only.

    For float32, bfloat16 and float16, the result has the bits of a hardware FMA for all operands, including subnormals,
    infinities and overflow. For float64 this holds while |a| and |b| are below 2**995 and no bit of a*b or of the
    result is below 2**-1074 (|a*b| is above 2**-968, or zero). Outside this range the last bit may differ, as it may
    for a*b + c with two roundings.
    """
    tensors, dtype = _as_tensors((a, b, c))
    wide_a, wide_b, wide_c = (tensor.double() for tensor in tensors)
    if dtype != torch.float64:
        # The product of two float32 numbers has 48 bits and is exact in float64; the sum may not be exact.
        sum_, error = two_sum(wide_a * wide_b, wide_c)
        return rounded(sum_, error, dtype)
    # high + low + lowest is the exact value; it is rounded below as in `rounded`.
    product, error = two_product(wide_a, wide_b)
    carried, lowest = two_sum(wide_c, error)
    high, low = two_sum(product, carried)
    tail, rest = two_sum(low, lowest)
    even, offset = two_sum(high, tail)
    # If even + 2*offset is exact, it is the neighbour of `even` on the other side of the value: the value is halfway
    # between the two, apart from `rest`.
    neighbour, inexact = two_sum(even, 2 * offset)
    halfway = torch.eq(inexact, 0) & torch.ne(offset, 0)
    exact = torch.where(halfway & (torch.sign(rest) * offset > 0), neighbour, even)
    # Where the result is zero (its sign may be wrong) or not finite (an intermediate may have overflowed), use a*b + c.
    return torch.where(torch.isfinite(exact) & torch.ne(exact, 0), exact, wide_a * wide_b + wide_c)


def _as_tensors(operands: Sequence[Operand]) -> tuple[list[torch.Tensor], torch.dtype]:
    """Return the operands as tensors, and the dtype of the result."""
    tensor_operands = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    # Tensors without dimensions do not widen the dtype of the others.
    dtype = functools.reduce(
        torch.promote_types,
        [tensor.dtype for tensor in tensor_operands if tensor.dim()] or [tensor.dtype for tensor in tensor_operands],
    )
    inside = dtype if dtype.itemsize >= 4 else torch.float32
    device = tensor_operands[0].device
    tensors = [
        operand if isinstance(operand, torch.Tensor) else torch.full((), operand, dtype=inside, device=device)
        for operand in operands
    ]
    return tensors, dtype


def rounded(value: torch.Tensor, rest: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round value + rest once, to nearest even, to a dtype narrower than float64.

    value: float64. rest: float64, smaller than any nonzero distance from `value` to a number halfway between two
    adjacent numbers of `dtype`; only its sign matters.
    """
    # torch casts float64 to the half formats via float32, which would round twice.
    if dtype != torch.float32:
        single = value.to(torch.float32)
        beyond = value - single.double()
        rest = torch.where(torch.eq(beyond, 0), rest, beyond)
        value = single.double()
    # If the value is halfway between two numbers, `rest` decides, not the rule that ties go to even.
    even = value.to(dtype)
    limit = _PAST_LARGEST[dtype]
    place = even.double().clamp(-limit, limit)
    offset = value - place
    neighbour = place + 2 * offset
    # If `neighbour` is a number of `dtype`, it is adjacent to `place` on the other side of `value`, so `value` is
    # halfway between the two. Infinity represents the number past the largest, which `dtype` does not have.
    narrow = neighbour.to(dtype)
    halfway = torch.eq(narrow.double().clamp(-limit, limit), neighbour) & torch.ne(offset, 0)
    return torch.where(halfway & (rest * offset > 0), narrow, even)


def two_sum(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a + b rounded, and the error: sum + error = a + b exactly, unless the sum overflows (Knuth)."""
    sum_ = a + b
    part = sum_ - a
    return sum_, (a - (sum_ - part)) + (b - part)


def two_product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a * b rounded to float64, and the error (Dekker).

    product + error = a * b exactly while no part overflows (|a|, |b| below 2**995) or underflows (|a*b| above 2**-968).
    """
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split 53 bits into 26 and 26 (Veltkamp); a_high + a_low = a exactly."""
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high
