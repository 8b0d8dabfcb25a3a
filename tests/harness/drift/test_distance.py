from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from numdrift.harness.drift import parameter_distance
from numdrift.harness.drift.distance import ArrayDistance, load, native_distance
from numdrift.harness.drift.parameter_distance import parameter_drift

Floats = NDArray[np.float32]

needs_compiler = pytest.mark.skipif(load() is None, reason="no C compiler")

special = st.sampled_from(
    [0x0, 0x80000000, 0x1, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x3F800000]
)
patterns = special | st.integers(0, 2**32 - 1)
pairs = st.lists(st.tuples(patterns, patterns) | patterns.map(lambda bits: (bits, bits)), max_size=80)


def measured_with_numpy(a: Floats, b: Floats) -> ArrayDistance:
    return parameter_distance._distance(a, b, np.dtype(np.float32))


def assert_close(native: ArrayDistance | None, expected: ArrayDistance) -> None:
    assert native is not None
    assert native.difference_norm == pytest.approx(expected.difference_norm, rel=1e-12)
    assert native.reference_norm == pytest.approx(expected.reference_norm, rel=1e-12)
    assert replace(native, difference_norm=0.0, reference_norm=0.0) == replace(
        expected, difference_norm=0.0, reference_norm=0.0
    )


@needs_compiler
@given(pairs)
def test_any_bits_have_the_distance_that_numpy_measures(bits: list[tuple[int, int]]) -> None:
    a, b = np.array(bits, np.uint32).reshape(-1, 2).T.copy().view(np.float32)
    assert_close(native_distance(a, b), measured_with_numpy(a, b))


@needs_compiler
@pytest.mark.parametrize("place", [0, 131_071, 131_072, 300_000, 300_016])
def test_every_element_of_a_long_array_counts(place: int) -> None:
    a = np.random.default_rng(0).standard_normal(300_017, np.float32)
    b = a * np.float32(1 + 1e-6)
    b[place] = 100.0
    assert_close(native_distance(a, b), measured_with_numpy(a, b))


@needs_compiler
def test_arrays_may_begin_at_any_byte_of_a_file() -> None:
    content = bytes(range(256)) * 3
    a, b = (np.frombuffer(content, np.float32, 100, offset) for offset in (1, 2))
    assert_close(native_distance(a, b), measured_with_numpy(a, b))


@needs_compiler
def test_arrays_that_are_not_read_in_place_are_left_to_numpy() -> None:
    a = np.ones((4, 4), np.float32)
    for other in (np.ones((4, 8), np.float32)[:, ::2], a.astype(np.float64), a.astype(">f4"), a.reshape(16)):
        assert native_distance(a, other) is None and native_distance(other, a) is None


@needs_compiler
def test_a_large_comparison_gives_the_same_numbers_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.linspace(-1, 1, 1000, dtype=np.float32)
    a, b = ({"w": w + np.float32(shift), "n": np.arange(3)} for shift in (0, 1e-3))
    small = parameter_drift(a, b)
    monkeypatch.setattr(parameter_distance, "WORTH_COMPILING", 0)
    large = parameter_drift(a, b)
    for before, after in zip(small.drifts, large.drifts, strict=True):
        assert after.relative_l2 == pytest.approx(before.relative_l2, rel=1e-12)
        assert replace(after, relative_l2=before.relative_l2) == before
