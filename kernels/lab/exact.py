"""Results of elementwise ops, computed by mpmath with at least 50 decimal digits and rounded once.

The first part of the module evaluates an op at the elements of calls; the second defines the ops on mpmath's numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import mpmath
import numpy as np
import torch
from mpmath import mp, mpf
from numpy.typing import NDArray

from .calls import LabCall
from .formats import Float64s

DIGITS = 50
"""The number of decimal digits for arguments of similar magnitudes near 1; other arguments need more."""

MOST = 2500
"""The maximum number of elements of one case that mpmath computes: it needs 10 to 200 microseconds for each."""

Exact = Callable[..., Any]


def rounded(number: Any) -> float:
    """Return the float64 nearest to an mpmath number, ties to even, subnormals and overflow included."""
    if not mpmath.isfinite(number) or number == 0:
        return float(number)
    sign, mantissa, exponent, bits = map(int, number._mpf_)
    if exponent + bits < -1100 or exponent + bits > 1100:
        return math.copysign(0.0 if exponent < 0 else math.inf, -1 if sign else 1)
    top, bottom = mantissa << max(exponent, 0), 1 << max(-exponent, 0)
    try:
        value = top / bottom  # Python divides integers with one rounding
    except OverflowError:
        value = math.inf
    return -value if sign else value


def picked(sizes: list[int], most: int = MOST) -> NDArray[np.intp]:
    """Return the positions of the elements to evaluate in several tensors: every element of a small tensor, and evenly
    spaced elements of a large one.

    Positions are counted through all tensors. The first element and the last 17 of a large tensor are always chosen.
    """
    small = sum(size for size in sizes if size <= 64)
    large = [size for size in sizes if size > 64]
    share = max(64, (most - small) // max(1, len(large)))
    chosen, start = [], 0
    for size in sizes:
        if size <= max(64, share):
            chosen.append(np.arange(start, start + size))
        else:
            even = np.linspace(0, size - 1, share - 16).round().astype(np.intp)
            chosen.append(start + np.union1d(even, np.arange(size - 17, size)))
        start += size
    return np.concatenate(chosen) if chosen else np.arange(0)


def elementwise(
    function: Exact, calls: list[LabCall], fallback: Float64s, positions: NDArray[np.intp]
) -> tuple[Float64s, Float64s]:
    """Evaluate `function` at `positions`, which count through the results of all calls. Return values and remainders.

    A value is the result rounded to float64, its remainder the part that this rounding dropped, rounded to float64.
    If an argument is not finite, or mpmath has no real result, the value is taken from `fallback`.
    """
    values, remainders = fallback[positions].copy(), np.zeros(len(positions))
    start = 0
    results: dict[tuple[tuple[float, ...], str], tuple[float, float] | None] = {}
    for call in itertools.chain.from_iterable(map(_unlisted, calls)):
        # The tensors' elements in the order of the result, and the other arguments.
        tensors = torch.broadcast_tensors(*(argument for argument in call.args if isinstance(argument, torch.Tensor)))
        remaining = LabCall(
            tuple(argument for argument in call.args if not isinstance(argument, torch.Tensor)), call.kwargs
        )
        columns = [tensor.detach().double().reshape(-1).tolist() for tensor in tensors]
        size = tensors[0].numel() if tensors else 0
        for place in np.flatnonzero((positions >= start) & (positions < start + size)):
            numbers = tuple(column[positions[place] - start] for column in columns)
            if not all(map(math.isfinite, numbers)):
                continue
            # results are kept, since zeros, ties and special numbers occur many times
            key = (numbers, repr(remaining))
            if key not in results:
                # Enough digits for a sum of products of the arguments in which the large products cancel and the small
                # ones remain. A bit is 0.3 decimal digits, and the product of two numbers spans twice as many bits as
                # they do.
                exponents = [0, *(math.frexp(number)[1] for number in numbers if number)]
                with mpmath.workdps(DIGITS + int(0.6 * (max(exponents) - min(exponents)))):
                    results[key] = None
                    with suppress(ValueError, ZeroDivisionError, OverflowError):
                        exact = function(*map(mpf, numbers), *remaining.args, **remaining.kwargs)
                        if not isinstance(exact, mpmath.mpc) and not mpmath.isnan(exact):
                            value = rounded(mpf(exact))
                            remainder = rounded(exact - mpf(value)) if math.isfinite(value) else 0.0
                            results[key] = value, remainder
            if (result := results[key]) is not None:
                values[place], remainders[place] = result
        start += size
    return values, remainders


def _unlisted(call: LabCall) -> Iterator[LabCall]:
    """Split a call on lists of tensors: yield one call for each place in the lists. Yield other calls unchanged."""

    def listed(value: Any) -> bool:
        return (
            isinstance(value, (list, tuple))
            and bool(value)
            and all(isinstance(element, torch.Tensor) for element in value)
        )

    lists = [argument for argument in call.args if listed(argument)]
    if not lists:
        yield call
    for place in range(len(lists[0]) if lists else 0):
        yield LabCall(tuple(argument[place] if listed(argument) else argument for argument in call.args), call.kwargs)


# Activations and their backwards on mpmath numbers, from their definitions. Tails are written so that 1 - s never
# cancels; a working precision of 50 digits is more than twice float64's.


def tanh(x: mpf) -> mpf:
    return mp.tanh(x)


def tanh_backward(grad: mpf, y: mpf) -> mpf:
    return grad * (1 - y) * (1 + y)


def sigmoid(x: mpf) -> mpf:
    return 1 / (1 + mp.exp(-x))


def sigmoid_backward(grad: mpf, y: mpf) -> mpf:
    return grad * y * (1 - y)


def silu(x: mpf) -> mpf:
    return x * sigmoid(x)


def silu_backward(grad: mpf, x: mpf) -> mpf:
    return grad * sigmoid(x) * (1 + x * sigmoid(-x))


def gelu(x: mpf, *, approximate: str = "none") -> mpf:
    return x * (sigmoid(2 * _inner(x)) if approximate == "tanh" else _normal(x))


def gelu_backward(grad: mpf, x: mpf, *, approximate: str = "none") -> mpf:
    if approximate == "tanh":
        u = _inner(x)
        slope = mp.sqrt(2 / mp.pi) * (1 + 3 * mpf("0.044715") * x**2)
        return grad * sigmoid(2 * u) * (1 + x * sigmoid(-2 * u) * 2 * slope)
    return grad * (_normal(x) + x * mp.npdf(x))


def _normal(x: mpf) -> mpf:
    """Return the distribution function of the standard normal distribution."""
    if abs(x) > 10**6:  # beyond mpmath's range
        return mpf(x > 0)
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _inner(x: mpf) -> mpf:
    return mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)


# addcmul, addcdiv and lerp on mpmath numbers. Numbers that are not tensors are used exactly as passed.


def addcmul(base: mpf, first: mpf, second: mpf, *, value: float = 1) -> mpf:
    return base + mp.convert(value) * first * second


def addcdiv(base: mpf, first: mpf, second: mpf, *, value: float = 1) -> mpf:
    return base + mp.convert(value) * first / second


def lerp(start: mpf, end: mpf, weight: mpf | float) -> mpf:
    return start + mp.convert(weight) * (end - start)
