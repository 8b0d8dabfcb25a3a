from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from numdrift.harness.drift import ulp
from numdrift.harness.drift.parameter_distance import ParameterDrift, ParameterMismatch, parameter_drift
from numdrift.harness.drift.ulp import NAN_DISTANCE

Array = NDArray[Any]

finite = st.floats(allow_nan=False, allow_infinity=False)
float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def one(a: Array, b: Array) -> ParameterDrift:
    (drift,) = parameter_drift({"w": a}, {"w": b}).drifts
    return drift


def norm(values: list[float]) -> float:
    """Return the L2 norm by an exact sum of squares, scaled so that no square overflows or vanishes."""
    largest = max((abs(v) for v in values), default=0.0)
    if largest == 0.0 or math.isinf(largest):
        return largest
    scale = Fraction(largest)
    total = math.fsum(float((Fraction(v) / scale) ** 2) for v in values)
    return math.sqrt(total) * largest


@given(st.lists(st.tuples(float32, float32), max_size=40))
def test_float32_agrees_with_exact_references(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs, np.float32).reshape(-1, 2).T
    differences = [x - y for x, y in pairs]
    drift = one(a, b)
    assert drift.max_absolute == max(map(abs, differences), default=0.0)
    expected = norm(differences) and (norm(differences) / norm(a.tolist()) if norm(a.tolist()) else math.inf)
    assert drift.relative_l2 == pytest.approx(expected, rel=1e-12)
    assert drift.differing == sum(x.tobytes() != y.tobytes() for x, y in zip(a, b, strict=True))
    assert drift.max_ulp == ulp.max_ulp(a, b)


@given(st.lists(finite, min_size=1, max_size=20), st.floats(1e-3, 0.5))
def test_float64_of_any_magnitude_neither_overflows_nor_vanishes(values: list[float], factor: float) -> None:
    a = np.array(values) / 8
    b = a * (1 - factor)
    differences = (a - b).tolist()
    expected = norm(differences) and norm(differences) / norm(a.tolist())
    assert one(a, b).relative_l2 == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.floats(), max_size=20))
def test_a_parameter_has_no_drift_from_itself(values: list[float]) -> None:
    a = np.array(values)
    drift = one(a, a.copy())
    assert (drift.max_ulp, drift.relative_l2, drift.max_absolute, drift.differing) == (0, 0.0, 0.0, 0)
    assert drift.numel == len(values)


@pytest.mark.parametrize(
    ("a", "b", "max_ulp", "relative", "absolute", "differing"),
    [
        ([0.0, 0.0], [0.0, 1.0], 0x3FF << 52, math.inf, 1.0, 1),
        ([0.0], [-0.0], 0, 0.0, 0.0, 1),
        ([math.nan, 3.0], [math.nan, 3.0], 0, 0.0, 0.0, 0),
        ([math.nan, 3.0], [1.0, 3.0], NAN_DISTANCE, math.inf, math.inf, 1),
        ([math.inf, 4.0], [math.inf, 3.0], 1 << 51, 0.25, 1.0, 1),
        ([math.inf], [-math.inf], 2 * (0x7FF << 52), math.inf, math.inf, 1),
        ([1.0], [math.inf], (0x7FF - 0x3FF) << 52, math.inf, math.inf, 1),
    ],
)
def test_rules_for_zero_and_non_finite(
    a: list[float], b: list[float], max_ulp: int, relative: float, absolute: float, differing: int
) -> None:
    drift = replace(one(np.array(a), np.array(b)), scale_ulp=None)
    assert drift == ParameterDrift("w", (len(a),), "float64", max_ulp, relative, absolute, differing, len(a))


def test_what_crosses_zero_is_measured_by_the_tensors_largest_value() -> None:
    a = np.array([1.5, 1e-9, -3.0], np.float32)
    drift = one(a, np.array([1.5, -1e-9, -3.0], np.float32))
    assert drift.max_ulp is not None and drift.max_ulp > 1_000_000_000
    assert drift.scale_ulp == pytest.approx(2e-9 / 2**-22)  # the spacing of float32 from 2 to 4
    assert one(a, a + np.array([0, 0, 2**-21], np.float32)).scale_ulp == 2.0
    assert one(np.zeros(2, np.float32), a[:2]).scale_ulp is None
    assert one(np.array([np.finfo(np.float16).max]), np.array([0], np.float16)).scale_ulp == pytest.approx(4094.0)
    assert one(np.array([math.nan, 1.0]), np.array([1.0, 1.0])).scale_ulp == math.inf


@pytest.mark.parametrize("oracle_is_reference", [True, False])
def test_an_oracle_is_measured_in_ulp_of_the_coarser_dtype(oracle_is_reference: bool) -> None:
    oracle = np.array([1.0 + 2**-40, 2.0])
    run = np.array([1.0 + 2**-23, 2.0], np.float32)
    a, b = (oracle, run) if oracle_is_reference else (run, oracle)
    comparison = parameter_drift({"w": a}, {"w": b})
    (drift,) = comparison.drifts
    assert drift.max_ulp == 1
    assert drift.max_absolute == 2**-23 - 2**-40
    assert drift.differing == 1
    assert comparison.mismatches == (ParameterMismatch("w", (2,), (2,), str(a.dtype), str(b.dtype)),)


def test_an_oracle_beyond_the_coarser_range_becomes_infinite() -> None:
    drift = one(np.array([1e300]), np.array([np.finfo(np.float32).max]))
    assert drift.max_ulp is not None
    drift = one(np.array([1e300]), np.array([np.finfo(np.float32).max], np.float32))
    assert drift.max_ulp == 1
    assert drift.max_absolute == pytest.approx(1e300)


@pytest.mark.parametrize(
    ("a", "b", "relative", "absolute"),
    [
        (np.array([2**62, 0]), np.array([2**62 + 1, 0]), 2.0**-62, 1.0),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2.0, 2.0**64),
        (np.array([True, True]), np.array([True, False]), 1 / math.sqrt(2), 1.0),
        (np.array([3 + 4j]), np.array([0j]), 1.0, 5.0),
        (np.array([4], np.int32), np.array([4.5], np.float32), 0.125, 0.5),
    ],
)
def test_integers_booleans_and_complex_numbers_have_no_ulp(
    a: Array, b: Array, relative: float, absolute: float
) -> None:
    drift = one(a, b)
    assert drift.max_ulp is None
    assert drift.relative_l2 == pytest.approx(relative)
    assert drift.max_absolute == absolute
    assert drift.differing == 1


def test_drifts_are_sorted_and_missing_names_and_shapes_are_reported() -> None:
    a = {"z": np.ones(2), "y": np.ones(2), "x": np.ones(2), "shape": np.ones((2, 1)), "a": np.ones(1)}
    b = {"z": np.ones(2), "y": np.ones(2), "x": np.zeros(2), "shape": np.ones((1, 2)), "b": np.ones(1)}
    comparison = parameter_drift(a, b)
    assert [drift.name for drift in comparison.drifts] == ["x", "y", "z"]
    assert (comparison.only_a, comparison.only_b) == (("a",), ("b",))
    assert comparison.mismatches == (ParameterMismatch("shape", (2, 1), (1, 2), "float64", "float64"),)


def test_scalars_and_empty_parameters() -> None:
    assert one(np.array(2.0), np.array(1.0)) == ParameterDrift("w", (), "float64", 1 << 52, 0.5, 1.0, 1, 1, 2.0**51)
    assert one(np.ones((0, 3)), np.ones((0, 3))) == ParameterDrift("w", (0, 3), "float64", 0, 0.0, 0.0, 0, 0)


def test_the_result_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    a = generator.normal(size=(50, 40)).astype(np.float32)
    b = a + np.float32(1e-6)
    whole = one(a, b)
    monkeypatch.setattr(ulp, "CHUNK", 64)
    chunked = one(a, b)
    assert chunked.relative_l2 == pytest.approx(whole.relative_l2, rel=1e-13)
    assert (chunked.max_ulp, chunked.max_absolute, chunked.differing) == (
        whole.max_ulp,
        whole.max_absolute,
        whole.differing,
    )
