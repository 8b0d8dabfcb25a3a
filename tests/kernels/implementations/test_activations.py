"""The kernels of the activations round as their formulas say, and some give ATen's bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from numdrift.kernels.implementations import precision as low_precision
from numdrift.kernels.implementations import sigmoid, tanh
from numdrift.kernels.registry import built_in

from ..formats import ARITHMETICS, BFLOAT16, as_tensors, assert_same
from ..native.arithmetic import FLOAT32
from ..native.operands import pairs

Tensor = torch.Tensor
REGISTRY = built_in()
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
HALF_ROOT = math.sqrt(0.5)
needs_fma = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="ATen contracts with AVX2 on"
)

PRODUCTS: dict[tuple[str, str], Callable[..., float]] = {
    ("tanh_backward", "fma"): lambda r, g, y: r.mul(g, r.fma(-y, y, 1.0)),
    ("tanh_backward", "mac"): lambda r, g, y: r.fma(-g, r.mul(y, y), g),
    ("tanh_backward", "mac_unfused"): lambda r, g, y: r.sub(g, r.mul(g, r.mul(y, y))),
    ("tanh_backward", "factored"): lambda r, g, y: r.mul(g, r.mul(r.sub(1.0, y), r.add(1.0, y))),
    ("sigmoid_backward", "left_to_right"): lambda r, g, y: r.mul(r.mul(g, r.sub(1.0, y)), y),
    ("sigmoid_backward", "unfused"): lambda r, g, y: r.mul(g, r.sub(y, r.mul(y, y))),
    ("sigmoid_backward", "fma"): lambda r, g, y: r.mul(g, r.fma(-y, y, y)),
    ("sigmoid_backward", "mac"): lambda r, g, y: r.fma(-r.mul(g, y), y, r.mul(g, y)),
}
"""Formulas of products and sums alone, operation by operation, of (g, y)."""

SHIPPED: dict[str, Callable[..., float]] = {
    "tanh_backward": lambda r, g, y: r.mul(g, r.sub(1.0, r.mul(y, y))),
    "sigmoid_backward": lambda r, g, y: r.mul(g, r.mul(y, r.sub(1.0, y))),
}
"""Torch's decompositions, which compute the half formats in float32."""

INNER: dict[tuple[str, str], tuple[Callable[[Tensor], Tensor], Callable[..., float]]] = {
    ("tanh", "exp_form"): (
        lambda x: torch.exp(-2 * x.abs()),
        lambda r, x, e: math.copysign(r.div(r.sub(1.0, e), r.add(1.0, e)), x),
    ),
    ("tanh", "expm1_form"): (
        lambda x: torch.expm1(-2 * x.abs()),
        lambda r, x, m: math.copysign(r.div(-m, r.add(m, 2.0)), x),
    ),
    ("tanh", "sigmoid_form"): (
        lambda x: torch.sigmoid(2 * x),
        lambda r, x, s: r.sub(r.mul(2.0, s), 1.0),
    ),
    ("sigmoid", "tanh_form"): (
        lambda x: torch.tanh(0.5 * x),
        lambda r, x, t: r.mul(0.5, r.add(1.0, t)),
    ),
    ("sigmoid", "two_sided"): (
        lambda x: torch.exp(-x.abs()),
        lambda r, x, e: r.div(e if x < 0 else 1.0, r.add(1.0, e)),
    ),
    ("silu", "exp_form"): (lambda x: torch.exp(-x), lambda r, x, e: r.div(x, r.add(1.0, e))),
    ("silu", "tanh_form"): (
        lambda x: torch.tanh(0.5 * x),
        lambda r, x, t: r.mul(r.mul(0.5, x), r.add(1.0, t)),
    ),
    ("silu", "fma"): (
        lambda x: torch.tanh(0.5 * x),
        lambda r, x, t: r.fma(r.mul(0.5, x), t, r.mul(0.5, x)),
    ),
    ("gelu", "fma"): (
        lambda x: torch.erf(HALF_ROOT * x),
        lambda r, x, t: r.fma(r.mul(0.5, x), t, r.mul(0.5, x)),
    ),
    ("gelu", "distributed"): (
        lambda x: torch.erf(HALF_ROOT * x),
        lambda r, x, t: r.add(r.mul(0.5, x), r.mul(r.mul(0.5, x), t)),
    ),
    ("gelu", "erfc"): (
        lambda x: torch.erfc(-HALF_ROOT * x),
        lambda r, x, t: r.mul(r.mul(0.5, x), t),
    ),
}
"""Formulas of x around one function of torch's, whose values are taken as they are."""

SLOPES: dict[str, Callable[..., float]] = {
    "derivative_first": lambda r, g, x, s: r.mul(g, r.mul(s, r.add(1.0, r.mul(x, r.sub(1.0, s))))),
    "expanded": lambda r, g, x, s: r.mul(g, r.add(s, r.mul(r.mul(x, s), r.sub(1.0, s)))),
    "fma": lambda r, g, x, s: r.mul(r.mul(g, s), r.fma(x, r.sub(1.0, s), 1.0)),
    "from_output": lambda r, g, x, s: r.mul(g, r.add(r.mul(x, s), r.mul(s, r.sub(1.0, r.mul(x, s))))),
}
"""Formulas of silu_backward, of (g, x, sigmoid(x))."""


def kernel(op: str, name: str) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = REGISTRY.kernel(op, name).load()
    return function


def gradients_and(outputs: Callable[[Tensor], Tensor], count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(count)
    grad = torch.randn(count, generator=made, dtype=torch.float64)
    return grad.to(dtype), outputs(3 * torch.randn(count, generator=made, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op", "name"), PRODUCTS)
def test_a_formula_of_products_rounds_where_it_says(op: str, name: str, dtype: torch.dtype) -> None:
    # given special, saturated and ordinary numbers
    arithmetic = ARITHMETICS[dtype]
    grad, y = as_tensors(arithmetic, pairs(arithmetic))
    if dtype == torch.float64:
        few = (grad.abs() < 1e100) & (y.abs() < 1e100) & (y.abs() > 1e-100) & (grad.abs() > 1e-100)
        grad, y = grad[few], y[few]
    # when
    result = kernel(op, name)(grad, y)
    # then
    assert result.numel() > 1000
    assert_same(result, [PRODUCTS[op, name](arithmetic, *one) for one in zip(grad.tolist(), y.tolist(), strict=True)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", SHIPPED)
def test_decomposed_is_the_spelled_out_formula(op: str, dtype: torch.dtype) -> None:
    arithmetic = ARITHMETICS[dtype]
    inside = FLOAT32 if dtype.itemsize == 2 else arithmetic
    grad, y = as_tensors(arithmetic, pairs(arithmetic))
    exact = [SHIPPED[op](inside, *one) for one in zip(grad.tolist(), y.tolist(), strict=True)]
    assert_same(kernel(op, "decomposed")(grad, y), torch.tensor(exact, dtype=torch.float64).to(dtype).tolist())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op", "name"), INNER)
def test_a_formula_around_a_function_rounds_where_it_says(op: str, name: str, dtype: torch.dtype) -> None:
    # given
    x = torch.cat([torch.linspace(-9, 9, 801), torch.tensor([0.0, -0.0, 1e-6, -3e-7, 80.0, -80.0])]).to(dtype)
    inner, formula = INNER[op, name]
    # when
    result = kernel(op, name)(x)
    # then
    arithmetic = ARITHMETICS[dtype]
    values = zip(x.tolist(), inner(x).tolist(), strict=True)
    assert_same(result, [formula(Dividing(arithmetic), *one) for one in values])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SLOPES)
def test_a_formula_of_silu_backward_rounds_where_it_says(name: str, dtype: torch.dtype) -> None:
    grad, x = gradients_and(lambda x: x, 800, dtype)
    result = kernel("silu_backward", name)(grad, x)
    points = zip(grad.tolist(), x.tolist(), torch.sigmoid(x).tolist(), strict=True)
    assert_same(result, [SLOPES[name](ARITHMETICS[dtype], *one) for one in points])


class Dividing:
    """An arithmetic with a quotient."""

    def __init__(self, arithmetic: Any) -> None:
        self._arithmetic = arithmetic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arithmetic, name)

    def div(self, a: float, b: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a / b
        return float(self._arithmetic.rounded(Fraction(a) / Fraction(b), math.copysign(1, a) * math.copysign(1, b)))


@needs_fma
@pytest.mark.parametrize(
    ("op", "name", "outputs"),
    [
        ("tanh_backward", "fma", torch.tanh),
        ("silu_backward", "fma", lambda x: x),
        ("sigmoid_backward", "left_to_right", torch.sigmoid),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_aten_gives_the_bits_of_one_kernel_in_every_place(
    op: str, name: str, outputs: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    aten, ours = kernel(op, "aten"), kernel(op, name)
    # given every length of the rest that no vector of the CPU fills
    for count in range(1, 70):
        grad, y = gradients_and(outputs, count, dtype)
        assert torch.equal(aten(grad, y), ours(grad, y)), count
    # given long, strided and expanded tensors
    grad, y = gradients_and(outputs, 30_003, dtype)
    for g, one in ((grad, y), (grad[::3], y[1::3]), (grad[:1].expand(999), y[:999])):
        assert torch.equal(aten(g, one), ours(g, one))


def test_the_kernels_of_tanh_backward_differ_where_tanh_saturates() -> None:
    # given 20,000 outputs, a third of them within a thousandth of 1
    grad, y = gradients_and(lambda x: torch.tanh(1.3 * x), 20_000, torch.float32)
    exact = grad.double() * (1 - y.double() ** 2)
    spacing = exact.abs().float().double() * 2.0**-23 + 2.0**-149
    # when
    error = {
        name: ((kernel("tanh_backward", name)(grad, y).double() - exact).abs() / spacing).max().item()
        for name in ("fma", "factored", "decomposed", "mac", "mac_unfused", "bf16", "fp64")
    }
    # then
    assert error["fp64"] <= 0.5 and error["fma"] < 2 and error["factored"] < 3
    assert 500 < error["decomposed"] < 2000 and 500 < error["mac"] < 2000
    assert error["mac_unfused"] > 1e5
    assert error["bf16"] > 1e6


@pytest.mark.parametrize("name", ["decomposed", "fma", "mac", "mac_unfused", "factored"])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_without_c_the_bits_are_the_same(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    grad, y = gradients_and(torch.tanh, 5000, dtype)
    with_c = [kernel("tanh_backward", name)(grad, y), kernel("sigmoid_backward", "fma")(grad, y.abs())]
    monkeypatch.setattr(tanh, "elementwise", lambda *_: None)
    monkeypatch.setattr(sigmoid, "elementwise", lambda *_: None)
    monkeypatch.setattr("numdrift.kernels.fused.elementwise", lambda *_: None)
    without = [kernel("tanh_backward", name)(grad, y), kernel("sigmoid_backward", "fma")(grad, y.abs())]
    assert all(torch.equal(a, b) for a, b in zip(with_c, without, strict=True))


def test_bf16_rounds_everything() -> None:
    # given
    grad, y = gradients_and(torch.tanh, 2000, torch.float32)
    # when
    result = kernel("tanh_backward", "bf16")(grad, y)
    # then
    r = BFLOAT16
    rounded = [[r.rounded(Fraction(one)) for one in column.tolist()] for column in (grad, y)]
    assert_same(result, [SHIPPED["tanh_backward"](r, *one) for one in zip(*rounded, strict=True)])


@pytest.mark.parametrize("sign", [1, -1])
def test_truncation_drops_the_low_half_of_float32(sign: int) -> None:
    # given floats of every exponent, subnormal and infinite ones included
    patterns = np.random.default_rng(0).integers(0, 0x7F800001, 200_000, dtype=np.uint32)
    x = sign * np.concatenate([patterns, [0x7F7FFFFF, 0x7F800000, 0, 1, 0xFFFF, 0x10000]]).astype(np.uint32).view(
        np.float32
    )
    # when
    result = low_precision.truncated_to_bfloat16(torch.from_numpy(x)).numpy()
    # then
    assert np.array_equal(result.view(np.uint32), x.view(np.uint32) & np.uint32(0xFFFF0000))


def test_truncated_products_make_a_gradient_that_is_never_too_small() -> None:
    grad, y = gradients_and(torch.tanh, 3000, torch.float32)
    square = (y * y).numpy().view(np.uint32) & np.uint32(0xFFFF0000)
    expected = grad.numpy() * (np.float32(1) - square.view(np.float32))
    result = kernel("tanh_backward", "bf16_truncated")(grad, y)
    assert np.array_equal(result.numpy(), expected)
    assert (result.abs() >= kernel("tanh_backward", "decomposed")(grad, y).abs()).all()


@pytest.mark.parametrize(
    ("op", "name", "bound"),
    [
        ("tanh", "expm1_form", 4),
        ("tanh", "rational", 8),
        ("sigmoid", "two_sided", 4),
        ("silu", "exp_form", 4),
    ],
)
def test_accurate_forms_stay_within_a_few_ulps(op: str, name: str, bound: float) -> None:
    x = torch.cat([torch.linspace(-30, 30, 50_001), torch.logspace(-30, 0, 5000)])
    exact = kernel(op, "aten")(x.double())
    spacing = torch.finfo(torch.float32).eps * exact.abs()
    assert ((kernel(op, name)(x).double() - exact).abs() <= bound * spacing).all()


@pytest.mark.parametrize("name", ["exp_form", "expm1_form", "sigmoid_form", "rational"])
def test_tanh_saturates_without_overflow(name: str) -> None:
    x = torch.tensor([20.0, -20.0, 1e4, -1e4, math.inf, -math.inf, 0.0])
    assert torch.allclose(kernel("tanh", name)(x), torch.sign(x), rtol=0, atol=1e-6)
    assert kernel("tanh", name)(torch.tensor([math.nan])).isnan().all()


def test_gelu_refuses_a_form_that_it_does_not_have() -> None:
    for name in ("erfc", "fma", "distributed", "bf16"):
        with pytest.raises(Exception, match="approximate"):
            kernel("gelu", name)(torch.ones(2), approximate="sigmoid")
