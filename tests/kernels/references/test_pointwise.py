"""The float64 references of addcmul, addcdiv and lerp against exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from numdrift.kernels.registry import built_in, load_target

BOUND = 1e-15
numbers = st.floats(-1e6, 1e6, width=32).filter(lambda value: value == 0 or abs(value) > 1e-20)
RATIONAL: dict[str, Callable[..., Fraction]] = {
    "addcmul": lambda base, first, second, value=1.0: base + Fraction(value) * first * second,
    "addcdiv": lambda base, first, second, value=1.0: base + Fraction(value) * first / second,
    "lerp": lambda start, end, weight: start + weight * (end - start),
}


def check(op: str, point: tuple[float, float, float], keywords: dict[str, Any]) -> None:
    operation = built_in().operation(op)
    result = load_target(operation.reference)(
        *[torch.tensor(one, dtype=torch.float64) for one in point], **keywords
    ).item()
    expected = RATIONAL[op](*map(Fraction, point), **keywords)
    assert abs(Fraction(result) - expected) <= Fraction(BOUND) * abs(expected), (op, point, result)
    with mp.workdps(60):
        exact = load_target(operation.exact)(*map(mpf, point), **keywords)
        assert abs(exact - mpf(expected.numerator) / expected.denominator) <= abs(exact) * mpf(10) ** -40


@given(st.tuples(numbers, numbers, numbers), st.sampled_from([1, 0.1, -3.0]))
def test_any_numbers(point: tuple[float, float, float], value: float) -> None:
    check("addcmul", point, {"value": value})
    check("lerp", point, {})
    assume(point[2] != 0)
    check("addcdiv", point, {"value": value})


@given(numbers, numbers.filter(bool), st.sampled_from([1, 0.1, -3.0]))
def test_nothing_is_lost_where_the_terms_cancel(first: float, second: float, value: float) -> None:
    check("addcmul", (-value * first * second, first, second), {"value": value})
    check("addcdiv", (-value * first / second, first, second), {"value": value})
    check("lerp", (first, first + second, -first / second), {})


@pytest.mark.parametrize("op", RATIONAL)
def test_infinity_and_overflow_give_what_the_plain_formula_gives(op: str) -> None:
    reference = load_target(built_in().operation(op).reference)
    ends = [0.0, 1.0, -2.0, 1e308, -1e308, math.inf, -math.inf, math.nan]
    a, b, c = (one.flatten() for one in torch.meshgrid(*[torch.tensor(ends).double()] * 3, indexing="ij"))
    plain = {"addcmul": a + b * c, "addcdiv": a + b / c, "lerp": a + c * (b - a)}[op]
    unusual = ~plain.isfinite()
    assert torch.equal(reference(a, b, c)[unusual].nan_to_num(3.0), plain[unusual].nan_to_num(3.0))


def test_a_scalar_weight_is_that_number() -> None:
    start, end = torch.randn(3, 1).double(), torch.randn(4).double()
    reference = load_target(built_in().operation("lerp").reference)
    assert torch.equal(reference(start, end, 0.3), reference(start, end, torch.tensor(0.3, dtype=torch.float64)))
    assert reference(start, end, 0.3).shape == (3, 4)
