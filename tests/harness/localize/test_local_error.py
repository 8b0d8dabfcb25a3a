"""A block's error against mpmath and double, for kernels whose errors are known."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.errors import local_error
from numdrift.harness.localize.errors.local_error import (
    MANY,
    SIGNS,
    LocalError,
    exact_block,
    moved_by_rounding,
    seeds_for,
    spacing_of,
)
from numdrift.harness.tape.tape import Tape

from .pairs import taped


def block(function: Callable[..., Tensor], *inputs: Tensor) -> Tape:
    """The ops of a function as a block of their own."""

    def work(saw: Callable[[str, Tensor], None]) -> None:
        saw("output 0", function(*inputs))

    return taped(work)


def error(function: Callable[..., Tensor], result: Tensor, *inputs: Tensor) -> LocalError:
    found = exact_block(block(function, *inputs)).error([result])
    assert found is not None
    return found


def fused(gradient: Tensor, output: Tensor) -> Tensor:
    found: Tensor = torch.ops.aten.tanh_backward(gradient, output)
    return found


def decomposed(gradient: Tensor, output: Tensor) -> Tensor:
    return gradient * (1 - output * output)


def contracted(gradient: Tensor, output: Tensor) -> Tensor:
    """g (1 - y y) with y y not rounded, as a fused multiply-add gives it."""
    inner = (1 - output.double() * output.double()).to(output.dtype)
    return gradient * inner


@pytest.fixture
def saturated() -> tuple[Tensor, Tensor]:
    """Gradients, and outputs of tanh so near to 1 that 1 - y y loses nearly every digit."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(4096, generator=generator) * 4 + 4
    return torch.randn(4096, generator=generator), torch.tanh(x)


def in_mpmath(gradient: Tensor, output: Tensor) -> list[mpmath.mpf]:
    with mpmath.workdps(60):
        return [
            mpmath.mpf(g) * (1 - mpmath.mpf(y) ** 2) for g, y in zip(gradient.tolist(), output.tolist(), strict=True)
        ]


def ulps_in_mpmath(result: Tensor, exact: list[mpmath.mpf]) -> float:
    """max |o - exact| / ulp(exact), the spacing of float32 at the exact value rounded towards zero."""
    worst = 0.0
    with mpmath.workdps(60):
        for got, value in zip(result.tolist(), exact, strict=True):
            if value:
                exponent = max(-126, int(mpmath.floor(mpmath.log(abs(value), 2))))
                worst = max(worst, float(abs(mpmath.mpf(got) - value) / mpmath.mpf(2) ** (exponent - 23)))
    return worst


@pytest.mark.parametrize("kernel", [decomposed, fused, contracted], ids=lambda one: one.__name__)
def test_ulps_are_those_of_mpmath(kernel: Callable[[Tensor, Tensor], Tensor], saturated: tuple[Tensor, Tensor]) -> None:
    gradient, output = saturated
    kept = output != 1
    gradient, output = gradient[kept], output[kept]
    result = kernel(gradient, output)
    expected = ulps_in_mpmath(result, in_mpmath(gradient, output))
    assert error(decomposed, result, gradient, output).ulp == pytest.approx(expected, rel=1e-6)


def test_a_lost_product_is_thousands_of_ulps_and_yet_within_what_rounding_the_input_makes(
    saturated: tuple[Tensor, Tensor],
) -> None:
    gradient, output = saturated
    careless = error(decomposed, decomposed(gradient, output), gradient, output)
    careful = error(decomposed, contracted(gradient, output), gradient, output)
    assert careless.ulp > 1000 and careless.rho < 4
    assert careful.ulp <= 2 and careful.rho < 0.1


def test_both_forms_are_good_where_nothing_cancels() -> None:
    generator = torch.Generator().manual_seed(1)
    gradient, output = torch.randn(4096, generator=generator), torch.rand(4096, generator=generator) * 0.5
    for kernel in (fused, decomposed):
        found = error(fused, kernel(gradient, output), gradient, output)
        assert found.ulp < 3 and found.rho < 2 and abs(found.bias) < 6


def truncated(exact: Tensor) -> Tensor:
    """bfloat16 by cutting the last 16 bits off, towards zero."""
    bits = exact.float().view(torch.int32) & ~0xFFFF
    return bits.view(torch.float32).to(torch.bfloat16)


def test_a_kernel_that_truncates_leans_and_one_that_rounds_does_not() -> None:
    # given positive sums, in bfloat16
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.rand(8192, generator=generator).bfloat16() + 0.5 for _ in range(2))
    exact = x.float() * y.float()

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    # when
    rounded = error(product, exact.bfloat16(), x, y)
    cut = error(product, truncated(exact), x, y)
    # then
    assert rounded.ulp <= 0.5 and abs(rounded.bias) < 6
    assert 0.5 < cut.ulp <= 1 and cut.bias < -50
    assert cut.rho < 16


def test_a_wrong_kernel_is_far_beyond_what_rounding_explains() -> None:
    generator = torch.Generator().manual_seed(3)
    gradient, output = torch.randn(512, generator=generator), torch.rand(512, generator=generator) * 0.9
    found = error(fused, fused(gradient, output) * 1.001, gradient, output)
    assert found.rho > 1000 and found.ulp > 1000


def test_an_exact_result_has_no_error() -> None:
    x = torch.arange(8.0)
    found = error(lambda x: x * 2, x * 2, x)
    assert (found.ulp, found.rho, found.bias) == (0.0, 0.0, 0.0)


def test_what_has_no_digits_has_no_error() -> None:
    x = torch.arange(8.0)
    exact = exact_block(block(lambda x: x > 3, x))
    assert exact.error([x > 3]) is None
    assert exact.error([torch.zeros(0)]) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values_are_moved_by_a_unit_in_the_last_place_with_signs_that_repeat(dtype: torch.dtype) -> None:
    # given numbers just above powers of two, where a roundoff of 2 u is one spacing, and more of them than signs
    values = torch.ldexp(torch.tensor(1.0), torch.arange(SIGNS + 5) % 7).to(dtype) * (1 + 4 * torch.finfo(dtype).eps)
    move = moved_by_rounding(3)

    first = move(values[:9].clone().view(torch.uint8), dtype).view(dtype)
    second = move(values[9:].clone().view(torch.uint8), dtype).view(dtype)
    again = moved_by_rounding(3)(values.clone().view(torch.uint8), dtype).view(dtype)

    moved = torch.cat([first, second])
    steps = ((moved.double() - values.double()) / spacing_of(values.double(), dtype)).sign()
    assert (moved.double() - values.double()).abs().le(2 * spacing_of(values.double(), dtype)).all()
    assert steps.abs().eq(1).all() and steps[: len(values) - SIGNS].equal(steps[SIGNS:]) and abs(steps.mean()) < 0.01
    assert again.equal(moved)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, s: x * s,
        lambda x, w, s: torch.tanh(x @ w),
        lambda x, w, s: torch.softmax(x * s, -1),
        lambda x, w, s: torch.nn.functional.layer_norm(x, (256,), w[0], w[1]),
        lambda x, w, s: torch.sigmoid(x) * (1 - torch.sigmoid(x)),
    ],
    ids=["scaled", "product", "softmax", "norm", "cancelled"],
)
def test_one_sample_of_many_elements_says_what_three_say(
    function: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(shape, generator=generator) for shape in ((MANY // 256, 256), (256, 256), ())]
    result = function(*inputs)
    once = error(function, result, *inputs)
    assert list(seeds_for({"output 0": result})) == [0]
    monkeypatch.setattr(local_error, "MANY", 2 * MANY)
    assert list(seeds_for({"output 0": result})) == [0, 1, 2]
    assert once.rho == pytest.approx(error(function, result, *inputs).rho, rel=0.05)
