"""fma against exact rational arithmetic, against mpmath and against the C library's."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from numpy.typing import NDArray
from torch.fx.experimental.proxy_tensor import make_fx

from numdrift.kernels import fused
from numdrift.kernels.fused import emulated_fma, fma, rounded, two_product, two_sum

from .formats import ARITHMETICS, NARROW, as_tensors, assert_same
from .native.arithmetic import FLOAT32, FLOAT64, Arithmetic
from .native.operands import special, ties, triples

singles = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("arithmetic", NARROW, ids=lambda one: one.dtype)
def test_narrow_formats_round_once_everywhere(arithmetic: Arithmetic) -> None:
    # given zeros, subnormals, the ends of the range, infinities and NaN with each other, and ordinary numbers
    ends = special(arithmetic)
    meeting = [(a, b, c) for a in ends for b in [*ends, 0.5, -1.5] for c in [*ends, 1.0]]
    a, b, c = as_tensors(arithmetic, [*meeting, *triples(arithmetic)])
    # when
    result = emulated_fma(a, b, c)
    # then
    exact = [arithmetic.fma(*point) for point in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    assert result.dtype == a.dtype
    assert_same(result, exact)


@pytest.mark.parametrize("arithmetic", NARROW, ids=lambda one: one.dtype)
def test_a_tie_goes_where_the_rest_lies(arithmetic: Arithmetic) -> None:
    # given c and half of its last place, a hair more and a hair less, next to powers of two and elsewhere
    precision = arithmetic.precision
    hair = 2.0 ** (1 - precision)
    lowest, highest = arithmetic.last_place + 2 * precision, arithmetic.overflow - 1
    points = [
        (nudge, sign * math.ldexp(0.5, exponent + 1 - precision), math.ldexp(mantissa, exponent))
        for exponent in (lowest, 0, 3, highest)
        for mantissa in (1.0, 1 + hair, 1.5, 1.5 + hair, 2 - 2 * hair, 2 - hair)
        for nudge in (1 - hair / 2, 1.0, 1 + hair, 0.5, 0.5 + hair)
        for sign in (1, -1)
    ]
    points += [(a, b, -c) for a, b, c in points]
    # when, then
    a, b, c = as_tensors(arithmetic, points)
    assert_same(emulated_fma(a, b, c), [arithmetic.fma(*point) for point in points])


def test_adversarial_ties_agree_with_mpmath() -> None:
    # given products halfway between two floats, with an addend that only one rounding can see
    a, b, c = ties(torch.float32, 3000, seed=5)
    # when
    result = emulated_fma(a, b, c).tolist()
    # then, also where rounding twice by way of float64 goes wrong
    with mp.workprec(1000):
        exact = [mpf(x) * mpf(y) + mpf(z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    with mp.workprec(24):
        expected = [float(+one) for one in exact]
    twice = (a.double() * b.double() + c.double()).float().tolist()
    assert result == expected
    assert sum(one != other for one, other in zip(twice, expected, strict=True)) > 300


@given(st.lists(st.tuples(singles, singles, singles), min_size=1, max_size=30))
def test_any_float32_operands_round_once(points: list[tuple[float, float, float]]) -> None:
    a, b, c = as_tensors(FLOAT32, [*points])
    assert_same(emulated_fma(a, b, c), [FLOAT32.fma(*point) for point in points])


@given(singles, singles, st.integers(-3, 3), st.sampled_from(NARROW))
def test_near_cancellation_rounds_once(a: float, b: float, step: int, arithmetic: Arithmetic) -> None:
    # given an addend that takes away the rounded product, give or take a few last places
    a, b = arithmetic.rounded(Fraction(a)), arithmetic.rounded(Fraction(b))
    c = arithmetic.mul(-arithmetic.mul(a, b), 1 + step * 2.0 ** (1 - arithmetic.precision))
    # when, then
    tensors = as_tensors(arithmetic, [(a, b, c)])
    assert_same(emulated_fma(*tensors), [arithmetic.fma(a, b, c)])


def test_float64_rounds_once_away_from_the_ends_of_its_range() -> None:
    # given ordinary numbers, near cancellations and adversarial ties
    made = torch.Generator().manual_seed(3)
    ordinary = [torch.randn(2000, generator=made, dtype=torch.float64) for _ in range(3)]
    near = [*ordinary[:2], -(ordinary[0] * ordinary[1])]
    for a, b, c in (ordinary, near, ties(torch.float64, 3000, seed=6)):
        # when, then
        points = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        assert_same(emulated_fma(a, b, c), [FLOAT64.fma(*point) for point in points])


def test_float64_at_the_ends_of_its_range_is_off_by_one_last_place_at_most() -> None:
    # given operands of which Dekker's product loses a part
    points = [
        (a, b, c)
        for a in (5e-324, 3e-310, 1.7e308, 2.0**1000 * 1.3)
        for b in (0.3, 1.0, 2.0**-40 * 1.7, -1.1)
        for c in (0.0, 1e-310, -1e-320, 1e300, -math.inf, math.nan)
    ]
    # when, then
    a, b, c = as_tensors(FLOAT64, points)
    for got, point in zip(emulated_fma(a, b, c).tolist(), points, strict=True):
        exact = FLOAT64.fma(*point)
        near = (exact, math.nextafter(exact, math.inf), math.nextafter(exact, -math.inf))
        assert got in near or (math.isnan(got) and math.isnan(exact)), point


@pytest.fixture
def c_library(tmp_path: Path) -> ctypes.CDLL:
    """fmaf and fma of the C library, over arrays."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    loop = (
        "void {0}(const {1} *a, const {1} *b, const {1} *c, {1} *r, long n)"
        " {{ while (n--) r[n] = {2}(a[n], b[n], c[n]); }}\n"
    )
    source = tmp_path / "fma.c"
    source.write_text(
        "#include <math.h>\n" + loop.format("single", "float", "fmaf") + loop.format("wide", "double", "fma")
    )
    target = tmp_path / "fma.so"
    subprocess.run([compiler, "-O1", "-ffp-contract=off", "-fPIC", "-shared", source, "-o", target, "-lm"], check=True)
    return ctypes.CDLL(str(target))


def from_c(function: Callable[..., None], *operands: NDArray[np.generic]) -> NDArray[np.generic]:
    result = np.empty_like(operands[0])
    arrays = [one.ctypes.data_as(ctypes.c_void_p) for one in (*operands, result)]
    function(*arrays, ctypes.c_long(result.size))
    return result


def test_any_bit_patterns_agree_with_the_c_library(c_library: ctypes.CDLL) -> None:
    # given floats of every kind, and triples whose exponents are close enough to meet
    made = np.random.default_rng(0)
    patterns = [made.integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32) for _ in range(3)]
    near = [made.standard_normal(300_000).astype(np.float32) for _ in range(2)]
    tied = [one.numpy() for one in ties(torch.float32, 100_000, seed=7)]
    for operands in (patterns, [*near, -(near[0] * near[1])], tied):
        # when
        result = emulated_fma(*map(torch.from_numpy, operands)).numpy()
        # then
        expected = from_c(c_library.single, *operands)
        differ = (result.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(result) & np.isnan(expected))
        assert not differ.any()


def test_float64_agrees_with_the_c_library(c_library: ctypes.CDLL) -> None:
    made = np.random.default_rng(1)
    near = [made.standard_normal(100_000) for _ in range(2)]
    tied = [one.numpy() for one in ties(torch.float64, 100_000, seed=8)]
    for operands in ([*near, -(near[0] * near[1])], tied):
        result = emulated_fma(*map(torch.from_numpy, operands)).numpy()
        assert np.array_equal(result, from_c(c_library.wide, *operands))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_with_and_without_c_the_bits_are_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    a, b, c = (torch.randn(3, 40, generator=torch.Generator().manual_seed(k)).to(dtype) for k in range(3))
    c[0] = -(a * b)[0]
    with_c = fma(a, b, c)
    # when
    monkeypatch.setattr(fused, "elementwise", lambda *_: None)
    # then
    assert torch.equal(with_c, fma(a, b, c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_operands_broadcast_and_numbers_count_in_the_precision_of_the_op(dtype: torch.dtype) -> None:
    # given a column, a row, and a number that no binary format has
    a, b = torch.randn(3, 1).to(dtype), torch.randn(4).to(dtype)
    inside = torch.float64 if dtype == torch.float64 else torch.float32
    number = torch.full((3, 4), 0.1, dtype=inside).double()
    # when
    result = fma(a, b, 0.1)
    # then
    exact = [
        ARITHMETICS[dtype].fma(x, y, z)
        for x, y, z in zip(
            a.expand(3, 4).flatten().tolist(),
            b.expand(3, 4).flatten().tolist(),
            number.flatten().tolist(),
            strict=True,
        )
    ]
    assert (result.shape, result.dtype) == ((3, 4), dtype)
    assert_same(result.flatten(), exact)


def test_a_tensor_without_dimensions_does_not_widen_the_others() -> None:
    halves = torch.ones(3, dtype=torch.bfloat16)
    assert fma(torch.tensor(0.5), halves, halves).dtype == torch.bfloat16
    assert fma(torch.tensor(0.5), torch.tensor(2.0), 1.0).shape == ()
    assert fma(torch.empty(0, 3), torch.ones(3), 1.0).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_the_trace_is_the_function(dtype: torch.dtype) -> None:
    # given a trace that was taken on zeros, where nothing is a tie
    traced = make_fx(emulated_fma)(*(torch.zeros(6000, dtype=dtype) for _ in range(3)))
    # when it sees ties, then
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    operands = [one.to(dtype) for one in ties(wide, 3000, seed=9)]
    assert torch.equal(traced(*operands), emulated_fma(*operands))


@given(
    st.floats(-1e30, 1e30).filter(lambda value: abs(value) > 1e-60),
    st.sampled_from([-1.0, 0.0, 1.0]),
    st.sampled_from(NARROW),
)
def test_float64_is_rounded_once_to_each_narrow_format(value: float, rest: float, arithmetic: Arithmetic) -> None:
    # given a number beside a tie: the rest is far smaller than the distance to any number that matters
    dtype = getattr(torch, arithmetic.dtype)
    tie = arithmetic.rounded(Fraction(value))
    if math.isfinite(tie) and tie != 0:
        value = tie * (1 + 2.0**-arithmetic.precision)
    rest *= value * 2.0**-100
    # when
    result = rounded(torch.tensor([value], dtype=torch.float64), torch.tensor([rest], dtype=torch.float64), dtype)
    # then
    assert_same(result, [arithmetic.rounded(Fraction(value) + Fraction(rest), value)])


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100))
def test_sum_and_product_with_their_errors_are_exact(a: float, b: float) -> None:
    x, y = torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)
    sum_, error = two_sum(x, y)
    assert Fraction(sum_.item()) + Fraction(error.item()) == Fraction(a) + Fraction(b)
    if a * b == 0 or abs(a * b) > 2.0**-900:
        product, error = two_product(x, y)
        if a == 0 or b == 0 or a * b != 0:
            assert Fraction(product.item()) + Fraction(error.item()) == Fraction(a) * Fraction(b)
