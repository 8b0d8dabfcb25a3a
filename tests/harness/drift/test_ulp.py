from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from numdrift.harness.drift import ulp
from numdrift.harness.drift.ulp import NAN_DISTANCE, max_ulp, paired_chunks, ulp_distance

WIDTHS: dict[Literal[16, 32, 64], Any] = {16: np.float16, 32: np.float32, 64: np.float64}
PRECISION_AND_LEAST_EXPONENT = {16: (11, -14), 32: (24, -126), 64: (53, -1022)}


def distance(a: float, b: float, dtype: Any) -> int:
    return int(ulp_distance(np.array([a], dtype), np.array([b], dtype))[0])


def place(value: float, width: int) -> int:
    """Number the non-negative representable numbers from 0, by exact rational arithmetic."""
    precision, least = PRECISION_AND_LEAST_EXPONENT[width]
    exact = abs(Fraction(value))
    exponent = max(math.frexp(value)[1] - 1, least) if value else least
    spacing = Fraction(2) ** (exponent - precision + 1)
    steps = exact / spacing + (exponent - least) * 2 ** (precision - 1)
    assert steps.denominator == 1
    return int(steps) if value >= 0 else -int(steps)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Literal[16, 32, 64], float, float]:
    width = draw(st.sampled_from(list(WIDTHS)))
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False)
    return width, draw(numbers), draw(numbers)


@given(pairs())
def test_distance_equals_the_difference_of_exact_places(
    pair: tuple[Literal[16, 32, 64], float, float],
) -> None:
    width, a, b = pair
    assert distance(a, b, WIDTHS[width]) == abs(place(a, width) - place(b, width))


@given(st.floats(allow_nan=False), st.integers(0, 200), st.sampled_from([-math.inf, math.inf]))
def test_distance_counts_the_steps_of_nextafter(start: float, steps: int, towards: float) -> None:
    end, walked = start, 0
    while walked < steps and end != towards:
        end = math.nextafter(end, towards)
        walked += 1
    assert distance(start, end, np.float64) == walked


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_walk_from_subnormals_through_zero(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    values = [dtype(k * float(tiny)) for k in (-2, -1, 0, 1, 2)]
    assert [distance(values[0], value, dtype) for value in values] == [0, 1, 2, 3, 4]
    assert distance(-0.0, 0.0, dtype) == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infinity_is_one_step_past_the_largest_number(dtype: Any) -> None:
    largest = np.finfo(dtype).max
    assert distance(largest, np.inf, dtype) == 1
    assert distance(-np.inf, -largest, dtype) == 1
    assert distance(np.inf, np.inf, dtype) == 0


def test_opposite_infinities_are_counted_exactly_in_float64() -> None:
    assert distance(-np.inf, np.inf, np.float64) == 2 * (0x7FF << 52)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_saturates_against_numbers_only(dtype: Any) -> None:
    assert distance(np.nan, -np.nan, dtype) == 0
    assert distance(np.nan, 1.0, dtype) == NAN_DISTANCE
    assert distance(-np.inf, np.nan, dtype) == NAN_DISTANCE


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=8), st.integers(0, 0xFFFF))
def test_bfloat16_agrees_with_float32_of_the_same_value(patterns: list[int], other: int) -> None:
    a = np.array(patterns, np.uint16)
    b = np.full_like(a, other)
    got = ulp_distance(a, b, bfloat16=True)
    wide_a, wide_b = (x.astype(np.uint32) << np.uint32(16) for x in (a, b))
    wide = ulp_distance(wide_a.view(np.float32), wide_b.view(np.float32))
    expected = np.where(wide == NAN_DISTANCE, wide, wide >> np.uint64(16))
    assert got.dtype == np.uint64
    assert got.tolist() == expected.tolist()


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), max_size=30))
def test_distance_is_symmetric_and_max_is_its_maximum(values: list[tuple[float, float]]) -> None:
    a, b = np.array(values, np.float32).reshape(-1, 2).T
    forward = ulp_distance(a, b)
    assert (forward == ulp_distance(b, a)).all()
    assert max_ulp(a, b) == max(forward.tolist(), default=0)


def test_layout_and_byte_order_do_not_matter() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = np.nextafter(a, np.float32(np.inf), dtype=np.float32)
    b[2, 1] = np.nextafter(b[2, 1], np.float32(np.inf), dtype=np.float32)
    assert max_ulp(a, np.asfortranarray(b)) == 2
    assert max_ulp(a.astype(">f4"), b) == 2
    assert max_ulp(a[:, ::2], b[:, ::2]) == 1
    assert ulp_distance(a.astype(">f4"), b)[2, 1] == 2
    assert max_ulp(np.array(1.0), np.array(1.0)) == 0
    assert ulp_distance(np.array(1.0), np.array(1.0)).shape == ()


def test_chunks_are_bounded_and_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ulp, "CHUNK", 16)
    a: NDArray[np.float32] = np.zeros(100, np.float32)
    b = a.copy()
    b[99] = np.finfo(np.float32).smallest_subnormal
    sizes = [x.size for x, _ in paired_chunks(a, b)]
    assert max(sizes) <= 16
    assert sum(sizes) == 100
    assert max_ulp(a, b) == 1


@pytest.mark.parametrize(
    ("a", "b", "bfloat16"),
    [
        (np.zeros(1, np.float32), np.zeros(1, np.float64), False),
        (np.zeros(1, np.int32), np.zeros(1, np.int32), False),
        (np.zeros(1, np.uint16), np.zeros(1, np.uint16), False),
        (np.zeros(1, np.float16), np.zeros(1, np.float16), True),
    ],
)
def test_other_formats_are_refused(a: NDArray[Any], b: NDArray[Any], bfloat16: bool) -> None:
    with pytest.raises(TypeError, match="ULP distance needs"):
        ulp_distance(a, b, bfloat16=bfloat16)
    with pytest.raises(TypeError, match="ULP distance needs"):
        max_ulp(a, b, bfloat16=bfloat16)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        ulp_distance(np.zeros((1, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="shapes differ"):
        max_ulp(np.zeros((1, 2)), np.zeros(2))
