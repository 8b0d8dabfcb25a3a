from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.kernels.lab import exact
from numdrift.kernels.lab.calls import LabCall


@given(st.integers(1, 2**160), st.integers(-1250, 900), st.sampled_from([-1, 1]))
def test_rounding_to_float64_is_to_nearest_even_everywhere(mantissa: int, exponent: int, sign: int) -> None:
    with mpmath.workdps(80):
        number = mpmath.mpf(sign * mantissa) * mpmath.mpf(2) ** exponent
    value = Fraction(sign * mantissa) * Fraction(2) ** exponent
    try:
        expected = float(value)
    except OverflowError:
        expected = math.copysign(math.inf, sign)
    assert exact.rounded(number) == expected
    assert math.copysign(1, exact.rounded(number)) == sign


def test_rounding_survives_numbers_beyond_any_float() -> None:
    assert exact.rounded(mpmath.exp(mpmath.mpf("1e40"))) == math.inf
    assert exact.rounded(-mpmath.exp(mpmath.mpf("1e40"))) == -math.inf
    assert exact.rounded(mpmath.exp(mpmath.mpf("-1e40"))) == 0
    assert math.isnan(exact.rounded(mpmath.nan))


def test_value_and_remainder_hold_the_result_to_twice_the_digits() -> None:
    # given x*y*z of three numbers of 53 bits, whose product has 159
    x, y, z = (1 + 2.0**-52, 3 - 2.0**-51, 5 + 2.0**-50)
    calls = [LabCall(tuple(torch.tensor([one], dtype=torch.float64) for one in (x, y, z)), {})]
    # when
    value, rest = exact.elementwise(lambda a, b, c: a * b * c, calls, np.zeros(1), np.array([0]))
    # then
    product = Fraction(x) * Fraction(y) * Fraction(z)
    assert value[0] == float(product)
    assert rest[0] == float(product - Fraction(float(product)))


def test_small_numbers_survive_large_ones_that_cancel() -> None:
    args = tuple(torch.tensor([one], dtype=torch.float64) for one in (5.8e25, 1.25e-28, 1.0))
    value, _ = exact.elementwise(
        lambda start, end, weight: start + weight * (end - start),
        [LabCall(args, {})],
        np.zeros(1),
        np.array([0]),
    )
    assert value[0] == 1.25e-28


def test_what_mpmath_cannot_do_is_left_to_the_fallback() -> None:
    # given a NaN, a division by zero and a square root that is not real
    x = torch.tensor([math.nan, 0.0, -4.0, 4.0])
    fallback = np.array([1.0, 2.0, 3.0, 4.0])
    # when
    value, rest = exact.elementwise(lambda v: 1 / mpmath.sqrt(v), [LabCall((x,), {})], fallback, np.arange(4))
    # then
    assert value.tolist() == [1.0, 2.0, 3.0, 0.5]
    assert rest.tolist() == [0, 0, 0, 0]


def test_tensors_broadcast_and_other_arguments_are_passed_on() -> None:
    calls = [
        LabCall((torch.tensor([[1.0], [2.0]]), torch.tensor([10.0, 20.0]), 3), {"value": 0.5}),
        LabCall(([torch.tensor([7.0]), torch.tensor([8.0])], [torch.tensor([1.0]), torch.tensor([2.0])], 0), {}),
    ]
    value, _ = exact.elementwise(
        lambda a, b, c, value=1: a * b + c * value, calls, np.zeros(6), np.array([0, 1, 3, 4, 5])
    )
    assert value.tolist() == [11.5, 21.5, 41.5, 7.0, 16.0]


def test_large_tensors_are_thinned_evenly_and_small_ones_kept() -> None:
    picked = exact.picked([10_001, 45, 3], most=1000)
    assert len(picked) <= 1000
    assert {0, 10_000, *range(10_001 - 16, 10_001), *range(10_001, 10_049)} <= set(picked.tolist())
    assert np.diff(picked).max() < 20
    assert len(exact.picked([100, 45], most=1000)) == 145
