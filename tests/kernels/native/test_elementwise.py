"""Every kernel of elementwise.c against exact rational arithmetic, rounded as its formula says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest
import torch

from numdrift.harness.compiler import compile_library
from numdrift.kernels.native import library
from numdrift.kernels.native.library import elementwise
from numdrift.kernels.native.source import shipped_source

from .arithmetic import FLOAT32, FLOAT64, Arithmetic
from .operands import pairs, ties, triples

FORMULAS: dict[str, Callable[..., float]] = {
    "tanh_backward_fma": lambda r, g, y: r.mul(g, r.fma(-y, y, 1.0)),
    "tanh_backward_mac": lambda r, g, y: r.fma(-g, r.mul(y, y), g),
    "tanh_backward_mac_unfused": lambda r, g, y: r.sub(g, r.mul(g, r.mul(y, y))),
    "tanh_backward_decomposed": lambda r, g, y: r.mul(g, r.sub(1.0, r.mul(y, y))),
    "tanh_backward_factored": lambda r, g, y: r.mul(g, r.mul(r.sub(1.0, y), r.add(1.0, y))),
    "sigmoid_backward_fma": lambda r, g, y: r.mul(g, r.fma(-y, y, y)),
    "addcmul_fma": lambda r, s, a, b, value: r.fma(r.mul(value, a), b, s),
    "lerp_fma": lambda r, start, end, weight: r.fma(weight, r.sub(end, start), start),
    "fma": lambda r, a, b, c: r.fma(a, b, c),
}
ARITHMETICS = pytest.mark.parametrize("arithmetic", [FLOAT32, FLOAT64], ids=["float32", "float64"])
needs_native = pytest.mark.skipif(
    not library.status().startswith("native"), reason=f"no C kernels here: {library.status()}"
)


def differing(got: list[float], expected: list[float]) -> list[int]:
    """Where two lists differ: zeros by their sign, NaNs not at all."""
    return [
        place
        for place, (a, b) in enumerate(zip(got, expected, strict=True))
        if not (a == b and math.copysign(1, a) == math.copysign(1, b)) and not (math.isnan(a) and math.isnan(b))
    ]


@needs_native
@ARITHMETICS
@pytest.mark.parametrize("name", FORMULAS)
def test_a_kernel_rounds_as_its_formula_says(name: str, arithmetic: Arithmetic) -> None:
    # given
    tensors, scalars = library.ELEMENTWISE[name]
    points = pairs(arithmetic) if tensors == 2 else triples(arithmetic)
    values = [-0.375] if scalars else []
    dtype = getattr(torch, arithmetic.dtype)
    operands = [torch.tensor(column, dtype=dtype) for column in zip(*points, strict=True)]
    # when
    result = elementwise(name, operands, values)
    # then
    assert result is not None and len(points) > 3000
    expected = [FORMULAS[name](arithmetic, *point, *values) for point in points]
    wrong = differing(result.tolist(), expected)
    assert not wrong, [(points[at], float(result[at]), expected[at]) for at in wrong[:5]]


@needs_native
def test_the_operands_tell_the_formulas_apart() -> None:
    # given the points on which the test above relies
    points = pairs(FLOAT32)
    names = [name for name in FORMULAS if name.startswith("tanh_backward")]
    results = {name: [FORMULAS[name](FLOAT32, *point) for point in points] for name in names}
    # then no two formulas agree on all of them
    for first in names:
        for second in names[: names.index(first)]:
            assert len(differing(results[first], results[second])) > 50, (first, second)


@needs_native
def test_a_scalar_is_rounded_to_the_dtype_first() -> None:
    value = 0.1
    ones = torch.ones(1)
    got = elementwise("addcmul_fma", [torch.zeros(1), ones, ones], [value])
    assert got is not None and float(got) == float(torch.tensor(value)) != value


@needs_native
@ARITHMETICS
def test_the_emulation_gives_the_bits_of_the_instruction(arithmetic: Arithmetic) -> None:
    # given elementwise.c as a CPU without the instruction gets it
    dtype = getattr(torch, arithmetic.dtype)
    emulated = compile_library(shipped_source("elementwise.c", "-DNUMDRIFT_EMULATE_FMA"))
    assert not library.has_hardware_fma(emulated)
    function = library.bind(emulated)["fma", dtype]
    # when
    operands = list(ties(dtype, 500_000, seed=5))
    exact = [torch.tensor(column, dtype=dtype) for column in zip(*triples(arithmetic), strict=True)]
    operands = [torch.cat(both) for both in zip(operands, exact, strict=True)]
    result = torch.empty_like(operands[0])
    function(result.numel(), *(one.data_ptr() for one in operands), result.data_ptr())
    # then it equals exact arithmetic on some, and the instruction on all
    chosen = random.Random(6).sample(range(result.numel()), 3000)
    expected = [arithmetic.fma(*(float(one[at]) for one in operands)) for at in chosen]
    assert not differing([float(result[at]) for at in chosen], expected)
    direct = elementwise("fma", operands)
    assert direct is not None
    same = (result == direct) & (result.signbit() == direct.signbit()) | (result.isnan() & direct.isnan())
    assert bool(same.all())


def test_the_ties_are_ties() -> None:
    # given the points of the test above, then computing in double and rounding again is wrong on many of them
    a, b, c = ties(torch.float32, 2000, seed=7)
    twice = (a.double() * b.double() + c.double()).float().tolist()
    once = [FLOAT32.fma(*point) for point in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    assert len(differing(twice, once)) > 200


@pytest.mark.parametrize("exponent", [-1080, -1074, -1060, -1030, -1022, -1021, -970, 0, 960])
@needs_native
def test_the_emulation_in_float64_is_exact_at_both_ends_of_the_range(exponent: int) -> None:
    # given products of 106 bits whose sum with c lands at `exponent`
    emulated = compile_library(shipped_source("elementwise.c", "-DNUMDRIFT_EMULATE_FMA"))
    function = library.bind(emulated)["fma", torch.float64]
    dice = random.Random(exponent)
    points = []
    for _ in range(400):
        split = dice.randint(-500, 500) if abs(exponent) > 900 else dice.randint(-100, 100)
        a, b = (
            dice.uniform(-2, 2) * 2.0 ** (exponent // 2 + split),
            dice.uniform(-2, 2) * 2.0 ** (exponent - exponent // 2 - split),
        )
        c = dice.choice([0.0, math.ldexp(dice.uniform(-2, 2), max(exponent + dice.randint(-110, 60), -1074)), -a * b])
        points.append((a, b, c))
    operands = [torch.tensor(column, dtype=torch.float64) for column in zip(*points, strict=True)]
    result = torch.empty_like(operands[0])
    # when
    function(400, *(one.data_ptr() for one in operands), result.data_ptr())
    # then
    wrong = differing(result.tolist(), [FLOAT64.fma(*point) for point in points])
    assert not wrong, [(points[at], float(result[at])) for at in wrong[:3]]


@ARITHMETICS
def test_the_reference_rounds_as_mpmath_does(arithmetic: Arithmetic) -> None:
    dice = random.Random(8)
    with mpmath.workprec(arithmetic.precision):
        for _ in range(3000):
            length = dice.randint(1, 60)
            whole = dice.getrandbits(arithmetic.precision) << length
            tied = (whole | 1 << (length - 1)) + dice.choice([-1, 0, 0, 1])
            expected = float(mpmath.ldexp(mpmath.mpf(tied), -50))
            assert arithmetic.rounded(Fraction(tied, 1 << 50)) == expected
            assert arithmetic.rounded(Fraction(-tied, 1 << 50)) == -expected
