from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift import norms
from numdrift.harness.drift.norms import Norm, difference, norm, root_mean_square

finite = st.floats(allow_nan=False, allow_infinity=False)


def close(found: Norm, squares: Fraction) -> bool:
    """Whether found**2 is that sum of squares, up to 1e-12; exact for any magnitude."""
    return abs(found.exact**2 - squares) <= Fraction(1, 10**12) * squares


@given(st.lists(finite, max_size=20))
def test_norm_of_any_magnitude_is_exact(values: list[float]) -> None:
    assert close(norm(np.array(values)), sum((Fraction(v) ** 2 for v in values), Fraction(0)))


@given(st.lists(st.tuples(finite, finite), max_size=20))
def test_distance_of_any_magnitude_is_that_of_the_rounded_differences(
    pairs: list[tuple[float, float]],
) -> None:
    # given
    a, b = np.array(pairs, np.float64).reshape(-1, 2).T
    # when
    found = difference(a, b)
    # then each difference has one rounding, of 2**-53
    assert close(found.distance, sum(((Fraction(y) - Fraction(x)) ** 2 for x, y in pairs), Fraction(0)))
    assert (found.distance.mantissa == 0) == all(x == y for x, y in pairs)
    assert found.differing == sum(x != y for x, y in pairs)
    assert found.same_places


def test_what_no_float_holds_is_infinite_as_a_value_only() -> None:
    # given
    huge = np.array([1.7e308, 1.7e308])
    # then
    assert difference(huge, -huge).distance.value == math.inf
    assert close(difference(huge, -huge).distance, 2 * (2 * Fraction(1.7e308)) ** 2)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ([math.nan, 1.0], [math.nan, 1.0], True),
        ([math.inf, 1.0], [math.inf, 1.0], True),
        ([math.inf, 1.0], [-math.inf, 1.0], False),
        ([math.nan, 1.0], [math.inf, 1.0], False),
        ([1.0, 1.0], [math.nan, 1.0], False),
    ],
)
def test_places_of_non_finite_values(a: list[float], b: list[float], same: bool) -> None:
    found = difference(np.array(a, np.float32), np.array(b, np.float32))
    assert found.same_places is same
    assert found.distance.value == 0.0


def test_chunks_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    # given an array of several pieces, and complex numbers against real ones
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 11)), rng.normal(size=(7, 11)) + 1j * rng.normal(size=(7, 11))
    monkeypatch.setattr(norms, "PIECE", 10)
    # then
    assert difference(a, b).distance.value == pytest.approx(np.linalg.norm(a - b))
    assert difference(b, a).distance.value == pytest.approx(np.linalg.norm(a - b))
    assert norm(b).value == pytest.approx(np.linalg.norm(b))


def test_root_mean_square() -> None:
    assert root_mean_square([Norm(0.75, 2), Norm(0.5, 3)]).value == pytest.approx(math.sqrt((3**2 + 4**2) / 2))
    assert root_mean_square([]).value == 0.0
