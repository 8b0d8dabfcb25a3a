from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from numdrift.harness.errors import KernelError, NotAvailable
from numdrift.kernels.implementations import matmul
from numdrift.kernels.references import sum_references as products

from ...row_by_row import table
from .parity import Call, Calls, Maker, call, cases, check, check_records, distance, registry

aten = torch.ops.aten
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def mm(make: Maker) -> Iterator[Call]:
    for inner in (37, 3, 1, 0):
        yield call(make(5, inner), make(inner, 4))
    yield call(make(0, 3), make(3, 4))


def bmm(make: Maker) -> Iterator[Call]:
    yield call(make(3, 5, 37), make(3, 37, 4))
    yield call(make(0, 5, 3), make(0, 3, 4))


def addmm(make: Maker) -> Iterator[Call]:
    yield call(make(4), make(5, 37), make(37, 4))
    yield call(make(5, 1), make(5, 37), make(37, 4), beta=0.5, alpha=-2.0)
    yield call(make(5, 4) * torch.nan, make(5, 37), make(37, 4), beta=0)
    yield call(make(4), make(5, 0), make(0, 4))


def linear(make: Maker) -> Iterator[Call]:
    yield call(make(2, 3, 37), make(4, 37), make(4))
    yield call(make(5, 37), make(4, 37))
    yield call(make(37), make(4, 37), make(4))
    yield call(make(0, 37), make(4, 37), make(4))


def composite(make: Maker) -> Iterator[Call]:
    query, key, value = make(2, 4, 7, 8), make(2, 4, 70, 8), make(2, 4, 70, 8)
    yield call(query, key, value)
    yield call(query, key, value, is_causal=True)
    yield call(query, key, value, attn_mask=make(7, 70), scale=0.3)
    yield call(query, make(2, 2, 70, 8), make(2, 2, 70, 8), enable_gqa=True)
    seen = torch.arange(7 * 70).reshape(7, 70) % 3 != 0
    yield call(query, make(2, 4, 70, 8), make(2, 4, 70, 8), seen)


def flash(make: Maker) -> Iterator[Call]:
    """The op reads rows as if they were dense, whatever their stride says: only heads and rows are transposed."""
    dense = Maker(make.dtype)

    def heads(count: int, length: int) -> torch.Tensor:
        if make.layout == "contiguous":
            return dense(2, count, length, 8)
        return dense(2, length, count, 8).transpose(1, 2)

    query, key, value = heads(4, 7), heads(4, 70), heads(4, 70)
    yield call(query, key, value)
    yield call(query, key, value, is_causal=True)
    yield call(query, key, value, attn_mask=dense(7, 70), scale=0.3)
    yield call(query, heads(2, 70), heads(2, 70))


def flash_backward(make: Maker) -> Iterator[Call]:
    for one in flash(make):
        op = getattr(aten, FLASH)
        causal, rest = one.kwargs.get("is_causal", False), one.kwargs
        rest = {name: value for name, value in rest.items() if name != "is_causal"}
        saved = op(*one.args, 0.0, causal, **rest)
        yield call(torch.ones_like(saved[0]).cumsum(-1), *one.args, *saved, 0.0, causal, **rest)


CALLS: dict[str, Calls] = {
    "mm": mm,
    "bmm": bmm,
    "addmm": addmm,
    "linear": linear,
    "scaled_dot_product_attention": composite,
    FLASH: flash,
    f"{FLASH}_backward": flash_backward,
}


def kernel(op: str, name: str) -> Any:
    return registry().kernel(op, name).load()


@table(("op", "name", "dtype"), cases(list(CALLS)))
def test_kernels_agree_with_the_op_in_float64(op: str, name: str, dtype: str) -> None:
    check(op, name, dtype, CALLS[op])


@pytest.mark.parametrize("op", CALLS)
def test_ops_have_kernels_that_explain_themselves(op: str) -> None:
    check_records(op)


@pytest.mark.parametrize("inner", [8, 37, 5, 3])
def test_split_k_adds_the_products_of_four_parts(inner: int) -> None:
    make = Maker(torch.float32)
    a, b = make(2, 6, inner), make(2, inner, 5)
    sizes = [inner // 4 + (part < inner % 4) for part in range(4) if inner // 4 + (part < inner % 4)]

    def added(product: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        parts = [product(left, right) for left, right in zip(a.split(sizes, -1), b.split(sizes, -2), strict=True)]
        total: torch.Tensor = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    right = added(torch.mm, a[0], b[0])
    assert torch.equal(kernel("mm", "split_k")(a[0], b[0]), right)
    assert torch.equal(kernel("addmm", "split_k")(torch.ones(5), a[0], b[0]), torch.ones(5) + right)
    assert torch.equal(kernel("bmm", "split_k")(a, b), added(torch.bmm, a, b))


def test_sequential_rounds_each_product_and_each_sum() -> None:
    make = Maker(torch.float32)
    a, b = make(3, 50), make(50, 2)
    right = np.zeros((3, 2), np.float32)
    for k in range(50):
        right = right + a.numpy()[:, k : k + 1] * b.numpy()[k : k + 1]
    assert kernel("mm", "sequential")(a, b).numpy().tobytes() == right.tobytes()
    # and sums tell that no product is fused with its sum, which leaves 2**-24, and that none is added to its neighbour
    # first or in a wider type, which leaves 1 or 2: what of these torch's own product does depends on the machine
    product, large = 1 + 2.0**-12, 2.0**24
    rows = torch.tensor([[-(1 + 2.0**-11), product, 0.0, 0.0], [large, 1.0, 1.0, -large]])
    columns = torch.tensor([[1.0, product, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]).t()
    assert kernel("mm", "sequential")(rows, columns).diagonal().tolist() == [0.0, 0.0]


def test_sequential_names_its_limit() -> None:
    inner = matmul.LONGEST_SEQUENCE + 1
    with pytest.raises(NotAvailable, match="split_k"):
        kernel("mm", "sequential")(torch.ones(1, inner), torch.ones(inner, 1))


def test_tf32_rounds_to_eleven_significant_bits() -> None:
    generator = np.random.default_rng(0)
    sizes = np.exp2(generator.uniform(-120, 127, 4000))
    x = (generator.standard_normal(4000) * sizes).clip(-3e38, 3e38).astype(np.float32)
    rounded = matmul.rounded_to_tf32(torch.from_numpy(x)).numpy()
    mantissa, exponent = np.frexp(x.astype(np.float64))
    steps = mantissa * 2**11
    tie = np.abs(steps - np.trunc(steps)) == 0.5
    right = np.ldexp(np.rint(steps), exponent - 11)
    assert (rounded == right)[~tie & (np.abs(right) < 3.4e38)].all()
    special = torch.tensor([torch.inf, -torch.inf, 0.0, 1.0 + 2.0**-10, 2.0**127])
    assert torch.equal(matmul.rounded_to_tf32(special), special)
    assert matmul.rounded_to_tf32(torch.tensor(torch.nan)).isnan()


def test_low_precision_products_are_those_of_rounded_inputs() -> None:
    make = Maker(torch.float32)
    a, b = make(6, 40), make(40, 5)
    assert torch.equal(kernel("mm", "bf16")(a, b), torch.mm(a.bfloat16().float(), b.bfloat16().float()))
    off = {name: distance(kernel("mm", name)(a, b), a.double() @ b.double()) for name in ("bf16", "tf32")}
    assert 1e-5 < off["tf32"] < off["bf16"] / 4


def test_references_are_exact_where_float64_cancels() -> None:
    make = Maker(torch.float64)
    a, b = make(3, 21).float().double(), make(21, 2).float().double()
    a[:, 20], b[20] = 2.0**70, torch.tensor([3.0, 5.0])
    a[:, 19], b[19] = -(2.0**70), torch.tensor([3.0, 5.0])
    right = [
        [float(sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True))) for column in b.t().tolist()]
        for row in a.tolist()
    ]
    assert distance(products.mm(a, b), torch.tensor(right, dtype=torch.float64)) < 2.0**-52
    assert distance(a @ b, torch.tensor(right, dtype=torch.float64)) > 1e-6
    assert torch.equal(products.bmm(a.unsqueeze(0), b.unsqueeze(0))[0], products.mm(a, b))
    assert torch.equal(products.addmm(a[:, :2], a, b, beta=0), products.mm(a, b))
    assert products.mm(a[:0], b).shape == (0, 2)


def gradients(function: Any, tensors: list[torch.Tensor], **kwargs: Any) -> list[torch.Tensor]:
    """Of a sum weighted by sin(1), sin(2), ... with respect to the tensors."""
    leaves = [one.detach().clone().requires_grad_() for one in tensors]
    result = function(*leaves, **kwargs)
    weights = torch.arange(1, result.numel() + 1).sin().reshape(result.shape)
    return list(torch.autograd.grad((result * weights.to(result.dtype)).sum(), leaves))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["aten", "decomposed", "whole", "split_k", "fp64", "bf16"])
def test_linear_has_gradients(name: str, dtype: torch.dtype) -> None:
    make = Maker(dtype)
    for shape in ((2, 3, 37), (5, 37), (37,)):
        tensors = [make(*shape), make(4, 37), make(4)]
        right = gradients(torch.nn.functional.linear, [one.double() for one in tensors])
        coarse = dtype == torch.bfloat16 or name == "bf16"
        for one, like in zip(gradients(kernel("linear", name), tensors), right, strict=True):
            assert one.dtype == dtype and one.shape == like.shape
            assert distance(one, like) < (2e-2 if coarse else 1e-6)


def test_whole_linear_is_one_node() -> None:
    make = Maker(torch.float32)
    x, weight = make(3, 8).requires_grad_(), make(4, 8).requires_grad_()
    result = kernel("linear", "whole")(x, weight)
    assert result.grad_fn.name().startswith("WholeLinear")
    assert {node.name() for node, _ in result.grad_fn.next_functions if node} == {"torch::autograd::AccumulateGrad"}
    frozen = kernel("linear", "whole")(x, weight.detach())
    assert torch.equal(torch.autograd.grad(frozen.sum(), x)[0], torch.ones(3, 4) @ weight)


@pytest.mark.parametrize("name", ["aten", "decomposed", "whole", "split_k", "fp64", "bf16"])
def test_linear_follows_autocast(name: str) -> None:
    make = Maker(torch.float32)
    x, weight, bias = make(3, 40).requires_grad_(), make(4, 40).requires_grad_(), make(4).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        result = kernel("linear", name)(x, weight, bias)
        right = torch.nn.functional.linear(x, weight, bias)
    assert (result.dtype, result.shape) == (right.dtype, right.shape)
    torch.testing.assert_close(result, right, atol=2e-2, rtol=2e-2)
    for one in torch.autograd.grad(result.float().sum(), (x, weight, bias)):
        assert one.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert kernel("linear", name)(x.double(), weight.double()).dtype == torch.float64


@pytest.mark.parametrize("name", ["aten", "math", "flash", "decomposed", "fp64", "bf16"])
def test_attention_follows_autocast(name: str) -> None:
    make = Maker(torch.float32)
    tensors, mask = [make(1, 2, 9, 8).requires_grad_() for _ in range(3)], make(9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        result = kernel("scaled_dot_product_attention", name)(*tensors, mask)
        right = aten.scaled_dot_product_attention(*tensors, mask)
    assert result.dtype == right.dtype
    torch.testing.assert_close(result, right, atol=2e-2, rtol=2e-2)
    assert {one.dtype for one in torch.autograd.grad(result.float().sum(), tensors)} == {torch.float32}


@pytest.mark.parametrize("arguments", [{}, {"is_causal": True}, {"scale": 0.3}])
@pytest.mark.parametrize("name", ["aten", "math", "flash", "decomposed", "fp64", "bf16"])
def test_attention_has_gradients(name: str, arguments: dict[str, Any]) -> None:
    make = Maker(torch.float32)
    tensors = [make(2, 3, 9, 8), make(2, 3, 9, 8), make(2, 3, 9, 8)]
    op = torch.nn.functional.scaled_dot_product_attention
    right = gradients(op, [one.double() for one in tensors], **arguments)
    actual = gradients(kernel("scaled_dot_product_attention", name), tensors, **arguments)
    for one, like in zip(actual, right, strict=True):
        assert one.dtype == torch.float32
        assert distance(one, like) < (3e-2 if name == "bf16" else 2e-6)


def test_attention_gives_zero_where_everything_is_masked() -> None:
    make = Maker(torch.float32)
    tensors = [make(1, 1, 3, 8) for _ in range(3)]
    seen = torch.tensor([[True] * 3, [False] * 3, [True, False, False]])
    for name in ("aten", "math", "flash", "decomposed", "fp64"):
        result = kernel("scaled_dot_product_attention", name)(*tensors, seen)
        assert torch.equal(result[0, 0, 1], torch.zeros(8))
        torch.testing.assert_close(result[0, 0, 2], tensors[2][0, 0, 0])


@pytest.mark.parametrize(
    ("shapes", "arguments", "why"),
    [
        ([(2, 9, 8)] * 3, {}, "4 dimensions"),
        ([(1, 2, 9, 8)] * 3, {"dropout_p": 0.5}, "no dropout"),
        ([(1, 2, 9, 8), (1, 2, 9, 8), (1, 2, 9, 6)], {}, "the same head size"),
        ([(1, 2, 9, 8)] * 3, {"attn_mask": torch.zeros(9, 9, requires_grad=True)}, "gradient of the mask"),
        ([(1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8)], {}, "enable_gqa"),
        ([(1, 2, 0, 8)] * 3, {}, "empty"),
    ],
)
def test_flash_names_the_constraint(shapes: list[tuple[int, ...]], arguments: Any, why: str) -> None:
    tensors = [torch.ones(shape) for shape in shapes]
    with pytest.raises(NotAvailable, match=why):
        kernel("scaled_dot_product_attention", "flash")(*tensors, **arguments)


def test_math_follows_dropout_and_fp64_refuses_it() -> None:
    make = Maker(torch.float32)
    tensors = [make(1, 2, 9, 8) for _ in range(3)]
    for name in ("math", "decomposed"):
        function = kernel("scaled_dot_product_attention", name)
        torch.manual_seed(0)
        first = function(*tensors, None, 0.5)
        torch.manual_seed(0)
        assert torch.equal(function(*tensors, None, 0.5), first)
        assert not torch.equal(function(*tensors, None, 0.5), first)
    with pytest.raises(KernelError, match="dropout"):
        kernel("scaled_dot_product_attention", "fp64")(*tensors, None, 0.5)
