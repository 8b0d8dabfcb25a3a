from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.loss_distance import (
    LossDrift,
    absolute_difference,
    loss_drift,
    relative_difference,
)

Run = dict[int, float | None]

runs = st.dictionaries(st.integers(0, 20), st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.0]))


def drift(a: Run, b: Run) -> LossDrift:
    steps_a, steps_b = sorted(a), sorted(b)
    return loss_drift(steps_a, [a[s] for s in steps_a], steps_b, [b[s] for s in steps_b])


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def absolute(a: float, b: float) -> float:
    if bits(a) == bits(b):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b)


def relative(a: float, b: float) -> float:
    difference = absolute(a, b)
    if difference == 0.0:
        return 0.0
    if math.isinf(difference) or a == 0.0:
        return math.inf
    try:
        return float(Fraction(difference) / abs(Fraction(a)))
    except OverflowError:
        return math.inf


@given(runs, runs)
def test_drift_agrees_with_a_step_by_step_reference(a: Run, b: Run) -> None:
    # given the steps at which both runs have a loss
    pairs = [(s, x, y) for s in sorted(a.keys() & b.keys()) if (x := a[s]) is not None and (y := b[s]) is not None]
    # when
    got = drift(a, b)
    # then
    assert got.common_steps == len(pairs)
    if not pairs:
        assert got == LossDrift(common_steps=0)
        return
    assert got.first_differing_step == next((s for s, x, y in pairs if bits(x) != bits(y)), None)
    absolutes = [absolute(x, y) for _, x, y in pairs]
    relatives = [relative(x, y) for _, x, y in pairs]
    assert got.max_absolute == max(absolutes)
    assert got.max_absolute_step == pairs[absolutes.index(max(absolutes))][0]
    assert got.max_relative == pytest.approx(max(relatives), rel=1e-15, abs=5e-324)
    assert got.final_step == pairs[-1][0]
    assert got.final_absolute == absolutes[-1]
    assert got.final_relative == pytest.approx(relatives[-1], rel=1e-15, abs=5e-324)


@given(runs)
def test_a_run_has_no_drift_from_itself(run: Run) -> None:
    got = drift(run, run)
    assert got.first_differing_step is None
    assert got.max_absolute in (0.0, None)
    assert got.max_relative in (0.0, None)


@pytest.mark.parametrize(
    ("a", "b", "absolute", "relative"),
    [
        (2.0, 3.0, 1.0, 0.5),
        (-2.0, 2.0, 4.0, 2.0),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, -0.0, 0.0, 0.0),
        (0.0, 1e-9, 1e-9, math.inf),
        (math.nan, math.nan, 0.0, 0.0),
        (math.nan, 1.0, math.inf, math.inf),
        (1.0, math.nan, math.inf, math.inf),
        (math.inf, math.inf, 0.0, 0.0),
        (math.inf, -math.inf, math.inf, math.inf),
        (math.inf, 1.0, math.inf, math.inf),
        (1.0, -math.inf, math.inf, math.inf),
        (math.nan, math.inf, math.inf, math.inf),
    ],
)
def test_rules_for_zero_and_non_finite(a: float, b: float, absolute: float, relative: float) -> None:
    assert absolute_difference(np.array([a]), np.array([b])).tolist() == [absolute]
    assert relative_difference(np.array([a]), np.array([b])).tolist() == [relative]


def test_the_first_step_of_a_maximum_is_reported() -> None:
    got = drift({0: 4.0, 1: 1.0, 2: 4.0, 3: 1.0}, {0: 4.0, 1: 2.0, 2: 5.0, 3: 1.0})
    assert (got.first_differing_step, got.max_absolute_step, got.max_relative_step) == (1, 1, 1)
    assert (got.final_step, got.final_absolute) == (3, 0.0)


def test_signed_zeros_differ_in_bits_but_not_in_value() -> None:
    got = drift({0: 0.0}, {0: -0.0})
    assert (got.first_differing_step, got.max_absolute) == (0, 0.0)


def test_steps_must_fit_the_losses_and_increase() -> None:
    with pytest.raises(ValueError, match="2 steps and 1 losses"):
        loss_drift([0, 1], [1.0], [0], [1.0])
    with pytest.raises(ValueError, match="3 follows 3"):
        loss_drift([0, 1], [1.0, 1.0], [3, 3], [1.0, 1.0])
