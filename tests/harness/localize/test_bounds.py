"""Bounds against mpmath and double: torch's own kernels keep them, kernels that compute in less do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from numdrift.harness.investigate.words.culprit_words import lines_of
from numdrift.harness.localize.causes.judged_alone import OTHER_PRODUCTS
from numdrift.harness.localize.errors.bounded_call import Digits, NoBound
from numdrift.harness.localize.errors.bounds import FORMULAS, SELECTIONS, error_bound
from numdrift.harness.localize.errors.local_error import LocalError, exact_block
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.tape.tape import Tape, mapped

from ...row_by_row import table
from .pairs import taped

aten = torch.ops.aten

U = 2.0**-24
ETA = 2.0**-149


class Numbers:
    """Random float32 numbers of one kind, shape by shape."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind = kind
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        plain = torch.randn(shape, generator=self._generator)
        if self._kind == "cancelling" and plain.numel() > 1:
            flat = plain.view(-1)
            half = flat.numel() // 2
            flat[half : 2 * half] = -flat[:half] * (1 + 1e-6)
        if self._kind == "extreme":
            return self._scaled(plain, -100, 60)
        return self._scaled(plain, -76, -60) if self._kind == "tiny" else plain

    def between(self, *shape: int) -> Tensor:
        """What tanh gives, often near to 1."""
        return torch.tanh(3 * torch.randn(shape, generator=self._generator))

    def numbers_below(self, end: int, *shape: int) -> Tensor:
        return torch.randint(end, shape, generator=self._generator)

    def _scaled(self, plain: Tensor, low: int, high: int) -> Tensor:
        """Times powers of two; the smallest are such that products are subnormal."""
        powers = torch.randint(low, high, plain.shape, generator=self._generator)
        return plain * torch.exp2(powers.float())


KINDS = ("normal", "cancelling", "extreme", "tiny")


@dataclass(frozen=True)
class Case:
    """A call of an op on random numbers, of which one result is looked at."""

    operation: Any
    arguments: Callable[[Numbers], tuple[Any, ...]]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    output: int = 0

    def __str__(self) -> str:
        return f"{str(self.operation).removeprefix('aten.')}-{self.output}"


def gradients(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output: int,
    *,
    transposed: bool = False,
) -> Case:
    """One gradient of a convolution."""

    def arguments(n: Numbers) -> tuple[Any, ...]:
        extra = [0] * len(stride)
        settings = (stride, padding, dilation, transposed, extra, groups)
        made = aten.convolution(torch.ones(x), torch.ones(w), None, *settings)
        return (n(*made.shape), n(*x), n(*w), [made.shape[1]], *settings, [True] * 3)

    return Case(aten.convolution_backward.default, arguments, output=output)


CASES = [
    Case(aten.add.Tensor, lambda n: (n(9, 33), n(33)), {"alpha": 0.1}),
    Case(aten.add.Tensor, lambda n: (n(9, 1), n(33))),
    Case(aten.add.Scalar, lambda n: (n(33), 0.1)),
    Case(aten.sub.Tensor, lambda n: (n(9, 33), n(9, 1)), {"alpha": -3}),
    Case(aten.rsub.Scalar, lambda n: (n(33), 0.3, 0.7)),
    Case(aten.mul.Tensor, lambda n: (n(9, 1, 33), n(4, 33))),
    Case(aten.mul.Scalar, lambda n: (n(99), 0.1)),
    Case(aten.div.Tensor, lambda n: (n(9, 33), n(33))),
    Case(aten.div.Tensor, lambda n: (n(9, 33), n())),
    Case(aten.div.Scalar, lambda n: (n(99), 0.1)),
    Case(aten.reciprocal.default, lambda n: (n(99),)),
    Case(aten.sqrt.default, lambda n: (n(99).abs(),)),
    Case(aten.addcmul.default, lambda n: (n(9, 33), n(9, 33), n(33)), {"value": -0.1}),
    Case(aten.addcmul.default, lambda n: (n(33), n(33), n(33))),
    Case(aten.addcdiv.default, lambda n: (n(9, 33), n(9, 33), n(33)), {"value": -0.1}),
    Case(aten.addcdiv.default, lambda n: (n(33), n(33), n(33).abs() + 1)),
    Case(aten.lerp.Scalar, lambda n: (n(99), n(99), 0.1)),
    Case(aten.lerp.Scalar, lambda n: (n(99), n(99), 0.9)),
    Case(aten.lerp.Tensor, lambda n: (n(99), n(99), n.between(99))),
    Case(aten.sum.default, lambda n: (n(50),)),
    Case(aten.sum.dim_IntList, lambda n: (n(7, 30, 5), [0, 2], True)),
    Case(aten.sum.dim_IntList, lambda n: (n(3, 1), [1])),
    Case(aten.mean.default, lambda n: (n(50),)),
    Case(aten.mean.dim, lambda n: (n(7, 30, 5), [-2])),
    Case(aten.linalg_vector_norm.default, lambda n: (n(300),)),
    Case(aten.linalg_vector_norm.default, lambda n: (n(9, 30), 2, [1], True)),
    Case(aten.mse_loss.default, lambda n: (n(90), n(90))),
    Case(aten.mse_loss.default, lambda n: (n(90), n(90), 2)),
    Case(aten.mse_loss.default, lambda n: (n(90), n(90), 0)),
    Case(aten.mse_loss_backward.default, lambda n: (n(), n(90), n(90), 1)),
    Case(aten.mm.default, lambda n: (n(7, 40), n(40, 9))),
    Case(aten.mm.default, lambda n: (n(7, 1), n(1, 9))),
    Case(aten.bmm.default, lambda n: (n(3, 7, 40), n(3, 40, 9))),
    Case(aten.addmm.default, lambda n: (n(9), n(7, 40), n(40, 9))),
    Case(aten.addmm.default, lambda n: (n(7, 1), n(7, 40), n(40, 9)), {"alpha": 0.3, "beta": -0.7}),
    Case(aten.addmm.default, lambda n: (n(9), n(7, 40), n(40, 9)), {"beta": 0}),
    Case(aten.addmv.default, lambda n: (n(7), n(7, 40), n(40)), {"alpha": -2.5}),
    Case(aten.baddbmm.default, lambda n: (n(3, 1, 9), n(3, 7, 40), n(3, 40, 9)), {"alpha": 3.3}),
    Case(aten.linear.default, lambda n: (n(2, 7, 40), n(9, 40), n(9))),
    Case(aten.linear.default, lambda n: (n(40), n(9, 40))),
    Case(aten.matmul.default, lambda n: (n(2, 1, 7, 40), n(3, 40, 5))),
    Case(aten.mv.default, lambda n: (n(7, 40), n(40))),
    Case(aten.dot.default, lambda n: (n(400), n(400))),
    Case(
        aten.convolution.default,
        lambda n: (n(2, 6, 9, 9), n(8, 3, 3, 3), n(8), [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
    ),
    Case(
        aten.convolution.default,
        lambda n: (n(2, 6, 9, 9), n(6, 4, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 2),
    ),
    Case(aten.convolution.default, lambda n: (n(2, 6, 20), n(8, 6, 3), n(8), [1], [1], [1], False, [0], 1)),
    *(gradients((2, 6, 9, 9), (8, 3, 3, 3), [2, 1], [1, 0], [1, 2], 2, output) for output in range(3)),
    *(gradients((2, 6, 9, 9), (6, 4, 3, 3), [2, 2], [1, 1], [1, 1], 2, output, transposed=True) for output in range(3)),
    Case(aten.tanh_backward.default, lambda n: (n(999), n.between(999))),
    Case(aten.sigmoid_backward.default, lambda n: (n(999), n.between(999).abs())),
    Case(aten.threshold_backward.default, lambda n: (n(99), n(99), 0)),
    Case(aten.where.self, lambda n: (n(99) > 0, n(99), n(1))),
    Case(aten.clamp.default, lambda n: (n(99), -0.1, 0.3)),
    Case(aten.neg.default, lambda n: (n(99),)),
    Case(aten.cat.default, lambda n: ([n(3, 5), n(4, 5)],)),
    Case(
        aten.embedding_dense_backward.default,
        lambda n: (n(60, 4), n.numbers_below(5, 60), 8, 0, False),
    ),
]


def in_double(value: Any) -> Any:
    """What a call takes, its numbers as doubles."""
    is_floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.double() if is_floating else value


def result(case: Case, arguments: tuple[Any, ...]) -> Tensor:
    found = case.operation(*arguments, **case.keywords)
    return found if isinstance(found, Tensor) else found[case.output]


def bound(case: Case, arguments: tuple[Any, ...], dtype: torch.dtype = torch.float32) -> Tensor | None:
    return error_bound(case.operation, mapped(in_double, arguments), case.keywords, dtype, case.output)


def ratio(case: Case, arguments: tuple[Any, ...], computed: Tensor) -> float:
    """The largest error over its bound, of what did not overflow."""
    allowed = bound(case, arguments, computed.dtype)
    assert allowed is not None and allowed.dtype == torch.float64 and allowed.shape == computed.shape
    exact = result(case, mapped(in_double, arguments))
    assert bool((allowed[exact.isfinite()] > 0).all())
    ratios = (computed.double() - exact).abs() / allowed
    ratios = ratios[torch.isfinite(ratios)]
    return float(ratios.max()) if ratios.numel() else 0.0


def lowered(value: Any) -> Any:
    is_floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.bfloat16() if is_floating else value


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=12, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32 - 1))
def test_kernels_of_torch_are_within_their_bounds(case: Case, kind: str, seed: int) -> None:
    arguments = case.arguments(Numbers(kind, seed))
    assert ratio(case, arguments, result(case, arguments)) <= 1


@table("case", CASES, ids=str)
def test_a_kernel_that_computes_in_bfloat16_is_far_beyond(case: Case) -> None:
    arguments = case.arguments(Numbers("normal", 0))
    computed = result(case, mapped(lowered, arguments)).float()
    assert ratio(case, arguments, computed) > 5


def test_every_formula_has_a_case() -> None:
    tested = {str(case.operation).split(".")[1] for case in CASES}
    assert set(FORMULAS) - tested == {"_to_copy", "copy"}
    assert not SELECTIONS.intersection(FORMULAS)


def test_a_sum_may_err_by_gamma_of_its_terms_in_any_order() -> None:
    # given
    x = Numbers("cancelling", 3)(257)
    case = Case(aten.sum.default, lambda n: (x,))
    with mpmath.workdps(60):
        numbers = [mpmath.mpf(one) for one in x.tolist()]
        u = mpmath.mpf(2) ** -24
        expected = 256 * u / (1 - 256 * u) * mpmath.fsum(abs(one) for one in numbers)
        exact = mpmath.fsum(numbers)
    # when
    found = bound(case, (x,))
    # then
    assert found is not None
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        total = torch.zeros(())
        for one in x[torch.randperm(257, generator=generator)]:
            total = total + one
        assert abs(mpmath.mpf(float(total)) - exact) <= float(found)


def test_a_product_may_err_by_gamma_of_its_terms() -> None:
    n = Numbers("normal", 4)
    a, b = n(3, 50), n(50, 2)
    found = bound(Case(aten.mm.default, lambda n: (a, b)), (a, b))
    gamma = 50 * U / (1 - 50 * U)
    expected = gamma * (a.double().abs() @ b.double().abs()) + 51 * ETA
    assert found is not None and torch.allclose(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "form",
    [
        lambda g, y: g * (1 - y * y),
        lambda g, y: g - g * (y * y),
        lambda g, y: g - (g * y) * y,
        lambda g, y: g * ((1 - y) * (1 + y)),
        lambda g, y: g * (1 - y.double() * y.double()).float(),
    ],
    ids=["plain", "multiplied out", "from the left", "factored", "contracted"],
)
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_every_way_to_write_tanh_backward_is_within_its_bound(
    form: Callable[[Tensor, Tensor], Tensor], spread: float
) -> None:
    # given
    generator = torch.Generator().manual_seed(5)
    g, y = (
        torch.randn(2000, generator=generator),
        torch.tanh(spread * torch.randn(2000, generator=generator)),
    )
    found = bound(Case(aten.tanh_backward.default, lambda n: (g, y)), (g, y))
    assert found is not None
    # then
    with mpmath.workdps(60):
        for got, one, other, allowed in zip(form(g, y).tolist(), g.tolist(), y.tolist(), found.tolist(), strict=True):
            exact = mpmath.mpf(one) * (1 - mpmath.mpf(other) ** 2)
            assert abs(mpmath.mpf(got) - exact) <= allowed


@table("kind", KINDS)
@table(
    "case",
    [one for one in CASES if str(one).startswith(("sum", "mean", "mm", "mul", "div", "lerp"))],
    ids=str,
)
def test_bfloat16_is_computed_in_float32_and_rounded_once(case: Case, kind: str) -> None:
    arguments = mapped(lowered, case.arguments(Numbers(kind, 6)))
    allowed = bound(case, arguments, torch.bfloat16)
    exact = result(case, mapped(in_double, arguments))
    assert allowed is not None
    once = exact.float().bfloat16()
    kept = once.isfinite()
    assert bool(((once.double() - exact).abs() <= allowed)[kept].all())


def test_a_sum_that_is_kept_in_bfloat16_is_beyond() -> None:
    # given
    x = Numbers("normal", 7)(4000).bfloat16()
    case = Case(aten.sum.default, lambda n: (x,))
    # when
    total = torch.zeros((), dtype=torch.bfloat16)
    for one in x:
        total = total + one
    # then
    assert ratio(case, (x,), total) > 1
    assert ratio(case, (x,), x.float().sum().bfloat16()) <= 1


def test_what_is_converted_before_a_sum_may_have_lost_digits() -> None:
    x = Numbers("normal", 8)(50)
    case = Case(aten.sum.dim_IntList, lambda n: (x, [0]), {"dtype": torch.bfloat16})
    exact, computed = x.double().sum(), x.sum(0, dtype=torch.bfloat16)
    allowed = bound(case, (x, [0]), torch.bfloat16)
    assert allowed is not None and float((computed.double() - exact).abs()) <= float(allowed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_rounds_once(dtype: torch.dtype) -> None:
    x = Numbers("normal", 9)(99)
    for case, arguments in (
        (Case(aten._to_copy.default, lambda n: (x,), {"dtype": dtype}), (x,)),
        (Case(aten.copy_.default, lambda n: ()), (torch.zeros(3, 99), x)),
    ):
        allowed = bound(case, arguments, dtype)
        assert allowed is not None and allowed.shape == arguments[0].shape
        assert bool(((x.to(dtype).double() - x.double()).abs() <= allowed).all())
        cut = (x.double() - x.to(dtype).double()).abs() + 2 * torch.finfo(dtype).eps * x.double().abs()
        assert bool((cut > allowed).all())


def test_ops_in_place_have_the_bounds_of_others_and_write_nothing() -> None:
    x, y = Numbers("normal", 10)(2, 9)
    before = x.double()
    for inplace, other in ((aten.add_.Tensor, aten.add.Tensor), (aten.clamp_.default, aten.clamp.default)):
        arguments = (before, y.double() if inplace is aten.add_.Tensor else -0.5)
        found = error_bound(inplace, arguments, {}, torch.float32)
        expected = error_bound(other, arguments, {}, torch.float32)
        assert found is not None and expected is not None and torch.equal(found, expected)
    assert torch.equal(before, x.double())


def named(value: Any) -> str | None:
    """A name that every process gives alike: those of functions hold their addresses."""
    return str(value) if isinstance(value, (torch._ops.OpOverload, torch.dtype)) else None


@pytest.mark.parametrize(
    ("operation", "arguments", "shape"),
    [
        (aten.sum.default, lambda n: (n(0),), ()),
        (aten.sum.dim_IntList, lambda n: (n(3, 0), [1]), (3,)),
        (aten.sum.dim_IntList, lambda n: (n(0, 3), [1], True), (0, 1)),
        (aten.sum.dim_IntList, lambda n: (n(2, 3), None), ()),
        (aten.sum.dim_IntList, lambda n: (n(2, 3), []), ()),
        (aten.sum.default, lambda n: (n(),), ()),
        (aten.mm.default, lambda n: (n(2, 0), n(0, 3)), (2, 3)),
        (aten.addmm.default, lambda n: (n(3), n(2, 0), n(0, 3)), (2, 3)),
        (aten.add.Tensor, lambda n: (n(0, 3), n(3)), (0, 3)),
        (aten.mul.Tensor, lambda n: (n(4, 1), n(1, 5)), (4, 5)),
        (aten.tanh_backward.default, lambda n: (n(0), n(0)), (0,)),
        (aten.where.ScalarOther, lambda n: (n(4, 1) > 0, n(5), 0.5), (4, 5)),
        (aten.stack.default, lambda n: ([n(4), n(4)],), (2, 4)),
        (
            aten.embedding_dense_backward.default,
            lambda n: (n(0, 4), torch.zeros(0, dtype=torch.int64), 3, -1, False),
            (3, 4),
        ),
    ],
    ids=named,
)
def test_a_bound_has_the_shape_of_its_result(
    operation: Any, arguments: Callable[[Numbers], tuple[Any, ...]], shape: tuple[int, ...]
) -> None:
    found = bound(Case(operation, arguments), arguments(Numbers("normal", 11)))
    assert found is not None and found.shape == shape


@pytest.mark.parametrize(
    ("operation", "arguments", "keywords", "dtype"),
    [
        (aten.exp.default, lambda n: (n(5),), {}, torch.float32),
        (aten._softmax.default, lambda n: (n(5, 3), 1, False), {}, torch.float32),
        (aten.native_layer_norm.default, lambda n: (n(5, 3), [3], None, None, 1e-5), {}, torch.float32),
        (aten.linalg_vector_norm.default, lambda n: (n(5), 1), {}, torch.float32),
        (aten.div.Tensor_mode, lambda n: (n(5), n(5)), {"rounding_mode": "floor"}, torch.float32),
        (aten.mean.default, lambda n: (n(0),), {}, torch.float32),
        (aten.add.Tensor, lambda n: (torch.ones(3, dtype=torch.int64), 1), {}, torch.int64),
        (aten.mul.Tensor, lambda n: (n(5), 1j), {}, torch.complex64),
        (aten.mm.out, lambda n: (n(2, 3), n(3, 4)), {"out": torch.zeros(2, 4)}, torch.float32),
        (aten._foreach_add.Scalar, lambda n: ([n(5)], 1.0), {}, torch.float32),
        (
            aten.embedding_dense_backward.default,
            lambda n: (n(6, 4), n.numbers_below(5, 6), 8, 0, True),
            {},
            torch.float32,
        ),
    ],
    ids=named,
)
def test_what_has_no_known_bound_is_given_none(
    operation: Any,
    arguments: Callable[[Numbers], tuple[Any, ...]],
    keywords: Mapping[str, Any],
    dtype: torch.dtype,
) -> None:
    case = Case(operation, arguments, keywords)
    assert bound(case, arguments(Numbers("normal", 12)), dtype) is None


def test_gradients_that_were_not_asked_for_have_no_bound() -> None:
    case = gradients((1, 2, 5), (2, 2, 3), [1], [0], [1], 1, 1)
    arguments = (*case.arguments(Numbers("normal", 13))[:-1], [True, False, True])
    assert bound(case, arguments) is None


def test_as_many_terms_as_numbers_between_one_and_two_have_no_bound() -> None:
    digits = Digits.of(torch.float32)
    assert digits.gamma(100) == pytest.approx(100 * U, rel=1e-4)
    with pytest.raises(NoBound):
        digits.gamma(2**24)


# as part of a block's error


def block(function: Callable[..., Tensor], *inputs: Tensor) -> Tape:
    def work(saw: Callable[[str, Tensor], None]) -> None:
        saw("output 0", function(*inputs))

    return taped(work)


def error(tape: Tape, computed: Tensor, *versions: Tape) -> LocalError:
    found = exact_block(tape, versions).error([computed])
    assert found is not None
    return found


def test_a_block_of_one_op_is_held_against_its_bound() -> None:
    x = Numbers("normal", 14)(64, 8)
    tape = block(lambda x: x.sum(0), x)
    within, beyond = error(tape, x.sum(0)).bound, error(tape, x.bfloat16().sum(0).float()).bound
    assert within is not None and 0 < within <= 1
    assert beyond is not None and beyond > 10


def test_a_product_in_tf32_is_beyond_what_any_order_can_err() -> None:
    # given the product of inputs that were cut to 10 bits, as tensor cores read them
    n = Numbers("normal", 15)
    x, y = n(32, 64), n(64, 32)

    def cut(value: Tensor) -> Tensor:
        return (value.view(torch.int32) & ~0x1FFF).view(torch.float32)

    # when
    found = error(block(torch.mm, x, y), cut(x) @ cut(y)).bound
    # then
    assert found is not None and found > 10


def test_a_block_of_several_ops_takes_the_bound_of_the_side_that_has_one() -> None:
    g, y = Numbers("normal", 16)(50), torch.tanh(Numbers("normal", 17)(50))
    several = block(lambda g, y: g * (1 - y * y), g, y)
    fused = block(lambda g, y: aten.tanh_backward(g, y), g, y)
    computed = g * (1 - y * y)
    assert error(several, computed).bound is None
    found = error(several, computed, several, fused).bound
    assert found is not None and 0 < found <= 1


def test_ops_in_place_are_held_against_their_bounds() -> None:
    x, y = Numbers("normal", 18)(2, 90)

    def added(x: Tensor, y: Tensor) -> Tensor:
        return x.add_(y, alpha=0.1)

    tape = block(added, x.clone(), y)
    found = error(tape, torch.add(x, y, alpha=0.1)).bound
    assert found is not None and 0 < found <= 1


def test_a_result_that_is_seen_transposed_is_held_against_its_bound() -> None:
    # given sums of very different sizes, so that a bound elsewhere is none
    x = Numbers("normal", 20)(6, 5, 9) * torch.logspace(-9, 9, 5).unsqueeze(1)
    tape = block(lambda x: x.sum(2).t(), x)
    assert tape.watched[0].view != tape.calls[0].outputs[0]
    found = error(tape, x.sum(2).t()).bound
    beyond = error(tape, x.bfloat16().float().sum(2).t()).bound
    assert found is not None and 0 < found <= 1
    assert beyond is not None and 10 < beyond < 1e6


def test_a_part_of_a_storage_that_others_write_has_no_bound() -> None:
    x = Numbers("normal", 21)(4, 9)

    def first_row(x: Tensor) -> Tensor:
        x[0].add_(1.5)
        return x

    assert error(block(first_row, x.clone()), first_row(x.clone())).bound is None


@pytest.mark.parametrize(
    ("function", "dtype"), [(torch.exp, torch.float32), (torch.sum, torch.float64)], ids=["exp", "in double"]
)
def test_an_error_without_a_bound(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    x = Numbers("normal", 19)(9).to(dtype)
    assert error(block(function, x), function(x)).bound is None


# in words


def culprit(op: str, bounds: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": "culprit",
        "op": op,
        "phase": "backward",
        "kind": "kernel",
        "reasons": [],
        "local_significance": "rounding",
        "error_ulp": {"a": 1.0, "b": 2.0},
        "rho": {"a": 1.0, "b": 2.0},
        "bound": bounds,
        "proof": {"swap_in": {"score_after": None}, "swap_out": {"score_after": None}},
    }


@pytest.mark.parametrize(
    ("op", "bounds", "said"),
    [
        (
            "aten.sum",
            {"a": 0.2, "b": 12.34},
            "the error is 12.3 times as large in lazy as any order of summation in its precision allows",
        ),
        (
            "aten.tanh_backward",
            {"a": 3.0, "b": "inf"},
            (
                "the error is 3 times as large in cpu and many times as large in lazy as correctly rounded steps in its "
                "precision allow"
            ),
        ),
    ],
)
def test_a_kernel_beyond_its_bound_is_told(op: str, bounds: Mapping[str, Any], said: str) -> None:
    assert said in lines_of(Culprit.from_json(culprit(op, bounds)), "cpu", "lazy")


@pytest.mark.parametrize("bounds", [{"a": 0.2, "b": 1.0}, {"a": None, "b": None}, {}])
def test_a_kernel_within_its_bound_is_not_told(bounds: Mapping[str, Any]) -> None:
    assert "the error is" not in " ".join(lines_of(Culprit.from_json(culprit("aten.sum", bounds)), "cpu", "lazy"))
    without = {name: value for name, value in culprit("aten.sum", {}).items() if name != "bound"}
    assert "the error is" not in " ".join(lines_of(Culprit.from_json(without), "cpu", "lazy"))


def test_a_convolution_by_transforms_keeps_within_the_bounds_of_its_planes() -> None:
    # given an image that is zero at its border, and Winograd's F(4, 3) in place of sums of products
    image = torch.zeros(1, 1, 6, 10)
    image[..., 2:4, 4:6] = torch.randn(1, 1, 2, 2, generator=torch.Generator().manual_seed(3)) * 100
    weight = torch.randn(1, 1, 3, 3, generator=torch.Generator().manual_seed(4))
    bt = torch.tensor(
        [
            [4.0, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    )
    g = torch.tensor([[6.0, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
    at = torch.tensor([[1.0, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    tiles = image.unfold(2, 6, 4).unfold(3, 6, 4)
    found = (at @ ((g @ weight @ g.T) * (bt @ tiles @ bt.T)) @ at.T).permute(0, 1, 2, 4, 3, 5).reshape(1, 1, 4, 8)
    # when
    arguments = (image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    exact = torch.nn.functional.conv2d(image.double(), weight.double())
    bound = error_bound(torch.ops.aten.convolution.default, arguments, {}, torch.float32)
    # then it errs where all products of an element are zero, and the bound of its plane allows for that
    assert bound is not None
    error = (found.double() - exact).abs()
    assert error[exact == 0].max() > 0
    assert (error <= OTHER_PRODUCTS * bound).all()
