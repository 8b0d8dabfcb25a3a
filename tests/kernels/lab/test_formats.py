from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.kernels.lab.formats import format_of

PRECISION_AND_LEAST = {
    torch.float16: (11, -14),
    torch.bfloat16: (8, -126),
    torch.float32: (24, -126),
    torch.float64: (53, -1022),
}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float64_ulp_is_the_standard_librarys(value: float) -> None:
    assert format_of(torch.float64).ulp(np.array([value]))[0] == math.ulp(value)


@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_float32_ulp_is_numpys(value: float) -> None:
    assert format_of(torch.float32).ulp(np.array([value]))[0] == abs(float(np.spacing(np.float32(value))))


@given(st.floats(-32768, 32768, width=16))
def test_float16_ulp_is_numpys(value: float) -> None:
    assert format_of(torch.float16).ulp(np.array([value]))[0] == float(np.spacing(np.float16(abs(value))))


@given(st.floats(1e-45, 1e38))
def test_bfloat16_ulp_of_a_real_number_is_the_gap_around_it(value: float) -> None:
    # given the power of two at or below the number, by exact arithmetic
    exponent = math.frexp(value)[1] - 1
    assert Fraction(2) ** exponent <= Fraction(value) < Fraction(2) ** (exponent + 1)
    # then there are 2**7 numbers to the next power, and below 2**-126 as many as just above it
    expected = Fraction(2) ** (max(exponent, -126) - 7)
    assert Fraction(float(format_of(torch.bfloat16).ulp(np.array([value]))[0])) == expected


@pytest.mark.parametrize("dtype", PRECISION_AND_LEAST, ids=str)
def test_formats_agree_with_torch(dtype: torch.dtype) -> None:
    form, about = format_of(dtype), torch.finfo(dtype)
    assert (form.precision, form.least_exponent) == PRECISION_AND_LEAST[dtype]
    assert form.largest == about.max
    assert form.tiny == about.tiny
    assert form.smallest == about.smallest_normal * about.eps
    assert form.unit_roundoff == about.eps / 2
