"""Results of ops that work element by element, computed with 50 decimal digits or more and rounded once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray

from .calls import LabCall
from .formats import Float64s

DIGITS = 50
"""Decimal digits where the arguments are about as large as 1 and each other; see `_digits`."""

MOST = 2500
"""Elements of one case that are computed this way: mpmath needs 10 to 200 microseconds for each."""

Exact = Callable[..., Any]


def rounded(number: Any) -> float:
    """The float64 nearest to an mpmath number, ties to even, subnormals and overflow included."""
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
    """Which of the elements of several tensors to look at: all of small ones, of large ones evenly spaced ones.

    Positions count through all tensors; the first, the last and 16 elements before it are always among them.
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
    """Evaluate `function` at the given positions of the calls' results, one after the other -> value,
    remainder.

    The value is the result rounded to float64, the remainder what that rounding took away, rounded to float64.
    Where an argument is not finite or mpmath has no real result, the value is that of `fallback`.
    """
    values, remainders = fallback[positions].copy(), np.zeros(len(positions))
    start = 0
    known: dict[tuple[tuple[float, ...], str], tuple[float, float] | None] = {}
    for call in itertools.chain.from_iterable(map(_unlisted, calls)):
        numbers, rest, size = _columns(call)
        for place in np.flatnonzero((positions >= start) & (positions < start + size)):
            one = tuple(column[positions[place] - start] for column in numbers)
            if not all(map(math.isfinite, one)):
                continue
            key = (one, repr(rest))
            if key not in known:
                known[key] = _evaluated(function, one, rest)
            if (found := known[key]) is not None:
                values[place], remainders[place] = found
        start += size
    return values, remainders


def _evaluated(function: Exact, numbers: tuple[float, ...], rest: LabCall) -> tuple[float, float] | None:
    with mpmath.workdps(_digits(numbers)):
        try:
            exact = function(*map(mpmath.mpf, numbers), *rest.args, **rest.kwargs)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(exact, mpmath.mpc) or mpmath.isnan(exact):
            return None
        value = rounded(mpmath.mpf(exact))
        return value, rounded(exact - mpmath.mpf(value)) if math.isfinite(value) else 0.0


def _digits(numbers: tuple[float, ...]) -> int:
    """Digits enough for a sum of products of the arguments in which the large ones cancel and the small ones
    stay."""
    exponents = [0, *(math.frexp(one)[1] for one in numbers if one)]
    return DIGITS + int(0.6 * (max(exponents) - min(exponents)))


def _unlisted(call: LabCall) -> Iterator[LabCall]:
    """A call on lists of tensors as one call for each place in the lists."""
    lists = [one for one in call.args if isinstance(one, (list, tuple)) and _tensors(one)]
    if not lists:
        yield call
        return
    for place in range(len(lists[0])):
        args = tuple(one[place] if isinstance(one, (list, tuple)) and _tensors(one) else one for one in call.args)
        yield LabCall(args, call.kwargs)


def _tensors(values: Any) -> bool:
    return bool(values) and all(isinstance(one, torch.Tensor) for one in values)


def _columns(call: LabCall) -> tuple[list[list[float]], LabCall, int]:
    """The tensors' elements in the order of the result, and the arguments that are none."""
    tensors = torch.broadcast_tensors(*(one for one in call.args if isinstance(one, torch.Tensor)))
    others = tuple(one for one in call.args if not isinstance(one, torch.Tensor))
    numbers = [one.detach().double().reshape(-1).tolist() for one in tensors]
    return numbers, LabCall(others, call.kwargs), tensors[0].numel() if tensors else 0
