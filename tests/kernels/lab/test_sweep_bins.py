from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import NotAvailable
from numdrift.kernels.lab.sweep_bins import (
    BIN,
    LANES,
    WORST,
    WORST_INPUT,
    NativeReduction,
    empty_bins,
    errors_of,
    fastest_reduction,
    lane_sums,
    merged_worst,
    native_reduction,
    reduce_run,
)
from numdrift.kernels.lab.sweep_domain import ENCODINGS, Encoding

NAMES = list(ENCODINGS)


def native(encoding: Encoding) -> NativeReduction:
    try:
        return native_reduction(encoding)
    except NotAvailable as error:
        pytest.skip(str(error))


def exact_error(encoding: Encoding, got: float, want: float) -> Fraction:
    """(got - want) / ulp(want) in rational arithmetic."""
    exponent = max(math.frexp(want)[1] - 1, encoding.least) if want else encoding.least
    return (Fraction(got) - Fraction(want)) / Fraction(2) ** (exponent - encoding.precision + 1)


@st.composite
def results(draw: st.DrawFn) -> tuple[Encoding, float, float]:
    """A result of the format, and an exact result near it or anywhere."""
    encoding = ENCODINGS[draw(st.sampled_from(NAMES))]
    got = encoding.value(draw(st.integers(0, encoding.patterns - 1)))
    near = st.floats(-4, 4).map(lambda steps: got * (1 + steps * 2.0**-encoding.precision))
    return encoding, got, draw(st.one_of(near, st.floats(), st.just(got)))


@given(results())
def test_the_error_is_that_of_rational_arithmetic(case: tuple[Encoding, float, float]) -> None:
    encoding, got, want = case
    errors = errors_of(encoding, np.array([got], np.float32), np.array([want]))
    rounds_to_finite = math.isfinite(want) and abs(want) < encoding.overflow
    assert errors.finite[0] == (math.isfinite(got) and rounds_to_finite)
    if errors.finite[0]:
        expected = exact_error(encoding, got, want)
        assert float(errors.signed[0]) == pytest.approx(float(expected), rel=1e-15, abs=1e-290)
        assert errors.correct[0] == (got == nearest(encoding, want))
    else:
        rounded = want if rounds_to_finite or math.isnan(want) else math.copysign(math.inf, want)
        assert errors.agree[0] == (got == rounded or (math.isnan(got) and math.isnan(want)))


def nearest(encoding: Encoding, want: float) -> float:
    """`want` rounded to the format, ties to even, in rational arithmetic."""
    exponent = max(math.frexp(want)[1] - 1, encoding.least) if want else encoding.least
    spacing = Fraction(2) ** (exponent - encoding.precision + 1)
    return float(round(Fraction(want) / spacing) * spacing)


def scattered(encoding: Encoding, count: int, seed: int) -> tuple[Any, Any]:
    """Results with errors of all sizes, some of them NaN, infinite, subnormal or zero."""
    random = np.random.default_rng(seed)
    got = encoding.values(random.integers(0, encoding.patterns, count))
    got[random.random(count) < 0.7] = encoding.value(0x3C00) * random.integers(1, 9)
    with np.errstate(invalid="ignore", over="ignore"):
        want = got * (1 + random.normal(size=count) * 2.0 ** -random.integers(2, 40, count))
    want[random.random(count) < 0.02] = np.nan
    want[random.random(count) < 0.02] = np.inf
    with np.errstate(invalid="ignore"):
        return got.astype(np.float32), want


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(
    first=st.integers(0, 1 << 14),
    sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    rising=st.booleans(),
)
def test_the_reduction_in_c_has_the_bits_of_the_one_in_numpy(
    name: str, first: int, sizes: list[int], seed: int, rising: bool
) -> None:
    encoding = ENCODINGS[name]
    in_c, by_numpy = empty_bins(1), empty_bins(1)
    compiled = native(encoding)
    for size in sizes:
        got, want = scattered(encoding, size, seed)
        if rising:
            got, want = np.sort(got), np.zeros(size)
        worst = compiled(encoding, got, want, first, in_c)
        assert worst.tobytes() == reduce_run(encoding, got, want, first, by_numpy).tobytes()
        first += size
    assert in_c.tobytes() == by_numpy.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_record_counts_what_happened(name: str) -> None:
    # given results around 1 that are off by these many ULP, and three that are not finite alike
    encoding = ENCODINGS[name]
    off = [0.0, 0.25, -0.5, 0.75, -1.5, 3.0]
    ulp = 2.0 ** (1 - encoding.precision)
    got = np.array([1.0] * 6 + [np.nan, np.inf, np.nan], np.float32)
    want = np.array([1 - one * ulp * (0.5 if one > 0 else 1) for one in off] + [1.0, np.inf, np.nan])
    # when
    record = empty_bins(1)
    worst = reduce_run(encoding, got, want, 100, record)
    # then: below 1 an ulp is half as wide, which the factor above makes up for
    kept = {key: record[key][0] for key in BIN.names or () if key not in ("ulp", "bias")}
    assert kept == {
        "count": 9, "measured": 6, "not_correct": 3, "above_half": 3, "above_one": 2, "above_two": 1,
        "disagree": 1, "max_at": 105, "disagree_at": 106, "max_ulp": 3.0,
    }  # fmt: skip
    assert lane_sums(record["ulp"]).tolist() == [sum(map(abs, off))]
    assert lane_sums(record["bias"]).tolist() == [sum(off)]
    assert worst.tolist() == [(3.0, 105), (1.5, 104), (0.75, 103), (0.5, 102), (0.25, 101)]


def test_splitting_a_run_changes_no_bit() -> None:
    encoding = ENCODINGS["float32"]
    got, want = scattered(encoding, 4096, seed=3)
    whole, parts = empty_bins(1), empty_bins(1)
    worst = reduce_run(encoding, got, want, 5, whole)
    found = []
    for start, end in ((0, 1), (1, 700), (700, 4096)):
        found.append(reduce_run(encoding, got[start:end], want[start:end], 5 + start, parts))
    assert whole.tobytes() == parts.tobytes()
    assert merged_worst(*found).tobytes() == worst.tobytes()


@given(st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 50)), unique=True), st.randoms())
def test_the_worst_do_not_depend_on_the_order(inputs: list[tuple[float, int]], random: Any) -> None:
    expected = sorted(inputs, key=lambda one: (-one[0], one[1]))[:WORST]
    random.shuffle(inputs)
    halves = [np.array(half, WORST_INPUT) for half in (inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :])]
    assert merged_worst(*halves).tolist() == expected


def test_an_input_is_summed_in_the_lane_of_its_last_bits() -> None:
    record = empty_bins(1)
    reduce_run(ENCODINGS["float16"], np.array([3.0], np.float32), np.array([2.0]), 0x4007, record)
    assert np.flatnonzero(record["ulp"][0]).tolist() == [0x4007 % LANES]


def test_without_a_compiler_numpy_counts_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    reduction, why = fastest_reduction(ENCODINGS["float16"])
    assert reduction is reduce_run
    assert "numpy" in why and "no-such-compiler" in why
