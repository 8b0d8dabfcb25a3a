"""The kernels of addcmul, addcdiv and lerp round as their formulas say, and some give ATen's bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch

from numdrift.kernels.implementations import lerp
from numdrift.kernels.implementations import lerp as pointwise
from numdrift.kernels.registry import built_in

from ..formats import ARITHMETICS, BFLOAT16, assert_same
from ..native.arithmetic import Arithmetic

Tensor = torch.Tensor
REGISTRY = built_in()
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
VALUE = -0.375
"""A scalar that every format has."""
needs_fma = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="ATen contracts with AVX2 on"
)


def div(r: Arithmetic, a: float, b: float) -> float:
    return r.rounded(Fraction(a) / Fraction(b), math.copysign(1, a) * math.copysign(1, b))


def two_sided(r: Arithmetic, start: float, end: float, weight: float) -> float:
    if abs(weight) >= 0.5:
        return r.fma(r.sub(weight, 1.0), r.sub(end, start), end)
    return r.fma(weight, r.sub(end, start), start)


FORMULAS: dict[tuple[str, str], Callable[..., float]] = {
    ("addcmul", "fma"): lambda r, a, b, c: r.fma(r.mul(VALUE, b), c, a),
    ("addcmul", "product_first"): lambda r, a, b, c: r.add(a, r.mul(VALUE, r.mul(b, c))),
    ("addcmul", "fma_product_first"): lambda r, a, b, c: r.fma(VALUE, r.mul(b, c), a),
    ("addcdiv", "quotient_first"): lambda r, a, b, c: r.add(a, r.mul(VALUE, div(r, b, c))),
    ("addcdiv", "fma"): lambda r, a, b, c: r.fma(VALUE, div(r, b, c), a),
    ("addcdiv", "reciprocal"): lambda r, a, b, c: r.add(a, r.mul(r.mul(VALUE, b), div(r, 1.0, c))),
    ("lerp", "fma"): lambda r, a, b, w: r.fma(w, r.sub(b, a), a),
    ("lerp", "fma_two_sided"): two_sided,
    ("lerp", "one_sided"): lambda r, a, b, w: r.add(a, r.mul(w, r.sub(b, a))),
    ("lerp", "two_products"): lambda r, a, b, w: r.add(r.mul(r.sub(1.0, w), a), r.mul(w, b)),
}
SHIPPED: dict[str, Callable[..., float]] = {
    "addcmul": lambda r, a, b, c: r.add(a, r.mul(r.mul(VALUE, b), c)),
    "addcdiv": lambda r, a, b, c: r.add(a, div(r, r.mul(VALUE, b), c)),
    "lerp": lambda r, a, b, w: (
        r.add(r.mul(r.sub(w, 1.0), r.sub(b, a)), b) if abs(w) >= 0.5 else r.add(r.mul(w, r.sub(b, a)), a)
    ),
}
"""Torch's decompositions."""


def kernel(op: str, name: str) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = REGISTRY.kernel(op, name).load()
    return function


def operands(op: str, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Random numbers, in half of which the sum nearly cancels; a weight between -0.2 and 1.2 for lerp."""
    made = torch.Generator().manual_seed(count)
    a, b, c = (torch.randn(count, generator=made, dtype=torch.float64) for _ in range(3))
    if op == "lerp":
        c = torch.rand(count, generator=made, dtype=torch.float64) * 1.4 - 0.2
    else:
        cancelling = -VALUE * (b * c if op == "addcmul" else b / c)
        a = torch.where(torch.arange(count) % 2 == 0, a, cancelling)
    return a.to(dtype), b.to(dtype), c.to(dtype)


def keywords(op: str) -> dict[str, float]:
    return {} if op == "lerp" else {"value": VALUE}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op", "name"), FORMULAS)
def test_a_formula_rounds_where_it_says(op: str, name: str, dtype: torch.dtype) -> None:
    tensors = operands(op, 1500, dtype)
    result = kernel(op, name)(*tensors, **keywords(op))
    points = zip(*(one.tolist() for one in tensors), strict=True)
    assert_same(result, [FORMULAS[op, name](ARITHMETICS[dtype], *one) for one in points])


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("op", SHIPPED)
def test_decomposed_is_the_spelled_out_formula(op: str, dtype: torch.dtype) -> None:
    tensors = operands(op, 1500, dtype)
    result = kernel(op, "decomposed")(*tensors, **keywords(op))
    points = zip(*(one.tolist() for one in tensors), strict=True)
    assert_same(result, [SHIPPED[op](ARITHMETICS[dtype], *one) for one in points])


@pytest.mark.parametrize("op", SHIPPED)
def test_bf16_rounds_everything(op: str) -> None:
    tensors = operands(op, 1500, torch.float32)
    result = kernel(op, "bf16")(*tensors, **keywords(op))
    formula = FORMULAS["lerp", "one_sided"] if op == "lerp" else SHIPPED[op]
    rounded = [[BFLOAT16.rounded(Fraction(x)) for x in one.tolist()] for one in tensors]
    assert_same(result, [formula(BFLOAT16, *one) for one in zip(*rounded, strict=True)])


@needs_fma
@pytest.mark.parametrize(("op", "name"), [("addcmul", "fma"), ("lerp", "fma_two_sided"), ("addcdiv", "decomposed")])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_aten_gives_the_bits_of_one_kernel_in_every_place(op: str, name: str, dtype: torch.dtype) -> None:
    aten, ours, given = kernel(op, "aten"), kernel(op, name), keywords(op)
    # given every length of the rest that no vector of the CPU fills
    for count in range(1, 70):
        tensors = operands(op, count, dtype)
        assert torch.equal(aten(*tensors, **given), ours(*tensors, **given)), count
    # given long and strided tensors
    tensors = operands(op, 30_001, dtype)
    strided = [one[::3] for one in tensors]
    assert torch.equal(aten(*tensors, **given), ours(*tensors, **given))
    assert torch.equal(aten(*strided, **given), ours(*strided, **given))


@needs_fma
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("weight", [0.1, 0.3, 0.5, 0.7, 1.0, -0.6])
def test_a_scalar_weight_counts_as_in_aten(weight: float, dtype: torch.dtype) -> None:
    start, end, _ = operands("lerp", 3001, dtype)
    ours = kernel("lerp", "fma_two_sided")(start, end, weight)
    assert torch.equal(kernel("lerp", "aten")(start, end, weight), ours)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scalars_keep_their_digits_in_the_half_formats(dtype: torch.dtype) -> None:
    # given numbers that the dtype does not have, so that rounding them first would show
    start, end = torch.zeros(1000, dtype=dtype), operands("lerp", 1000, dtype)[0]
    number = torch.tensor(0.1).item()
    # when, then
    expected = [ARITHMETICS[dtype].rounded(Fraction(number) * Fraction(x), x) for x in end.tolist()]
    assert kernel("lerp", "fma")(start, end, 0.1).tolist() == expected
    ones = torch.ones_like(end)
    assert kernel("addcmul", "fma_product_first")(start, end, ones, value=0.1).tolist() == expected


@pytest.mark.parametrize(("op", "name"), [("addcmul", "fma"), ("lerp", "fma")])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_without_c_the_bits_are_the_same(
    op: str, name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = operands(op, 5000, dtype)
    given = {} if op == "lerp" else {"value": 0.1}
    with_c = kernel(op, name)(*tensors, **given)
    monkeypatch.setattr(pointwise, "elementwise", lambda *_: None)
    monkeypatch.setattr(lerp, "elementwise", lambda *_: None)
    monkeypatch.setattr("numdrift.kernels.fused.elementwise", lambda *_: None)
    assert torch.equal(with_c, kernel(op, name)(*tensors, **given))


def test_lerp_meets_its_ends_where_the_formula_does() -> None:
    # given ends of very different size
    start, end = torch.tensor([1e8, 1.0]), torch.tensor([1.0, 1e-9])
    # when, then
    for name in ("aten", "decomposed", "fma_two_sided", "two_products"):
        assert torch.equal(kernel("lerp", name)(start, end, torch.ones(2)), end), name
    assert not torch.equal(kernel("lerp", "one_sided")(start, end, torch.ones(2)), end)
