from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from numdrift.kernels.lab.formats import INTEGERS, Float64s, format_of
from numdrift.kernels.lab.measures import Measures, measure
from numdrift.kernels.lab.reference import Expected

FLOAT32 = format_of(torch.float32)


def expected(values: Float64s, sensitivity: Float64s | None = None, rest: Float64s | None = None) -> Expected:
    rest = np.zeros(len(values)) if rest is None else rest
    return Expected("", np.arange(len(values)), values, rest, sensitivity)


def measured(got: list[float], wanted: list[float]) -> Measures:
    return measure(np.array(got), FLOAT32, expected(np.array(wanted)), None)


def normal(count: int, seed: int = 0) -> Float64s:
    return np.random.default_rng(seed).normal(size=count)


def truncated(values: Float64s) -> Float64s:
    """Rounded to float32 towards zero."""
    nearest = values.astype(np.float32)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(values)
    return np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest).astype(np.float64)


def floored(values: Float64s) -> Float64s:
    """Rounded to float32 downwards."""
    nearest = values.astype(np.float32)
    above = nearest.astype(np.float64) > values
    return np.where(above, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float64)


def test_errors_are_counted_in_the_gap_at_the_exact_result() -> None:
    # given results 1, 2 and 3.5 gaps away; the gap is 2**-23 at 1 and 2**-22 at 2
    one = measured([1 + 2.0**-23, 2 + 2.0**-21, -1 - 3.5 * 2.0**-23], [1.0, 2.0, -1.0])
    assert one.error(1.0) == 3.5
    assert one.error(0.5) == 2
    assert one.worst == (-1 - 3.5 * 2.0**-23, -1.0)


def test_rounding_to_nearest_errs_by_half_a_gap_and_is_not_biased() -> None:
    values = normal(20_000)
    one = measure(values.astype(np.float32).astype(np.float64), FLOAT32, expected(values), None)
    assert 0.49 < one.error(1.0) <= 0.5
    assert 0.24 < one.error(0.5) < 0.26
    assert abs(one.up.z) < 4 and abs(one.away.z) < 4


def test_truncation_is_a_bias_to_zero_and_none_upwards() -> None:
    values = normal(20_000)
    one = measure(truncated(values), FLOAT32, expected(values), None)
    # then every sign is the same: z is the root of the number of distinct results
    assert one.away.ulp == pytest.approx(-0.5, abs=0.01)
    assert one.away.z < -100 and one.away.towards == "to 0"
    assert abs(one.up.z) < 4
    assert one.bias is one.away


def test_rounding_down_is_a_bias_downwards() -> None:
    values = normal(20_000)
    one = measure(floored(values), FLOAT32, expected(values), None)
    assert one.bias is one.up and one.up.towards == "down"
    assert one.up.ulp == pytest.approx(-0.5, abs=0.01) and one.up.z < -100


def test_results_that_repeat_prove_no_bias() -> None:
    # given one inexact result ten thousand times
    values = np.full(10_000, 0.1)
    one = measure(values.astype(np.float32).astype(np.float64), FLOAT32, expected(values), None)
    assert abs(one.up.z) == 1


def test_errors_far_below_a_gap_prove_no_bias() -> None:
    # given ones, which are what 1 + tiny has to become
    values = 1 + np.abs(normal(10_000)) * 1e-12
    one = measure(np.ones(10_000), FLOAT32, expected(values), None)
    assert one.up.z == 0 and one.up.ulp < 0


def test_infinities_and_nans_count_as_equal_where_they_should_be() -> None:
    one = measured([math.inf, -math.inf, math.nan, 1.0], [math.inf, -math.inf, math.nan, 1.0])
    assert one.mismatches == {}
    assert (one.elements, one.finite, one.error(1.0)) == (4, 1, 0)


def test_non_finite_results_are_counted_by_kind() -> None:
    one = measured([math.nan, math.nan, math.inf, 1.0, -math.inf, 5.0], [1.0, 2.0, 3.0, math.inf, math.inf, math.nan])
    assert one.mismatches == {
        "nan where finite": 2,
        "inf where finite": 1,
        "-inf where inf": 1,
        "finite where inf": 1,
        "finite where nan": 1,
    }


def test_overflow_of_the_format_is_no_error_where_rounding_overflows() -> None:
    largest = FLOAT32.largest
    assert measured([math.inf], [1e39]).error(1.0) == 0
    assert measured([math.inf], [1e39]).mismatches == {}
    # a result that is just beyond the largest number but rounds to it
    assert measured([largest], [largest * (1 + 2.0**-26)]).mismatches == {}
    # one gap early is one gap, and is told
    early = measured([math.inf], [largest])
    assert early.error(1.0) == 1 and early.mismatches == {"inf where finite": 1}


def test_a_remainder_is_part_of_the_exact_result() -> None:
    # given an exact float64 result 1 + 0.3 * 2**-52, of which the value is 1
    form = format_of(torch.float64)
    one = measure(np.ones(1), form, expected(np.ones(1), rest=np.array([0.3 * 2.0**-52])), None)
    assert one.error(1.0) == pytest.approx(0.3)


def test_rho_holds_the_error_against_the_condition() -> None:
    # given errors of 5 and a condition of 3 and 4, whose norm is 5, at results without weight
    sensitivity = np.array([3.0, 4.0])
    one = measure(np.array([3.0, 4.0]), FLOAT32, expected(np.zeros(2), sensitivity), None)
    assert one.rho == pytest.approx(1)
    # and without condition errors of u, at 1: the unit roundoff itself
    two = measure(np.full(9, 1 + 2.0**-24), FLOAT32, expected(np.ones(9), np.zeros(9)), None)
    assert two.rho == pytest.approx(1)


def test_rho_knows_subnormal_results() -> None:
    # given results rounded to the grid of the subnormals
    values = np.abs(normal(1000)) * 2.0**-148
    got = values.astype(np.float32).astype(np.float64)
    rho = measure(got, FLOAT32, expected(values, np.zeros(1000)), None).rho
    assert rho is not None and 0.3 < rho < 1


def test_integers_are_counted_in_ones_and_have_no_rho() -> None:
    one = measure(np.array([3.0, 4.0]), INTEGERS, expected(np.array([3.0, 7.0]), np.zeros(2)), None)
    assert one.error(1.0) == 3 and one.rho is None


def test_nothing_finite_is_no_error_at_all() -> None:
    one = measured([math.nan], [1.0])
    assert one.errors == () and one.worst is None and one.rho is None
