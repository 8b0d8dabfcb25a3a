from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from numdrift.harness.errors import NotAvailable
from numdrift.kernels.implementations import sums
from numdrift.kernels.native import library
from numdrift.kernels.references import sum_references as reductions

from ...row_by_row import table
from .parity import Call, Calls, Maker, call, cases, check, check_records, registry

Row = NDArray[Any]


def sum_calls(make: Maker) -> Iterator[Call]:
    yield call(make(4, 6, 5))
    yield call(make(4, 6, 5), [1])
    yield call(make(4, 6, 5), [-1, 0], True)
    yield call(make(4, 6, 5), None, True)
    yield call(make(4, 6, 5), [])
    yield call(make(3, 150), [1], dtype=torch.float32)
    yield call(make(4, 6), [0], dtype=torch.float64)
    yield call(make(0, 5), [0])
    yield call(make(0, 5), [1], True)
    yield call(make())
    yield call(make(), [0])


CALLS: dict[str, Calls] = {"sum": sum_calls, "mean": sum_calls}


def kernel(op: str, name: str) -> Any:
    return registry().kernel(op, name).load()


def sequential(x: Row) -> Any:
    total = x.dtype.type(0)
    for one in x:
        total = total + one
    return total


def kahan(x: Row) -> Any:
    total = lost = x.dtype.type(0)
    for one in x:
        addend = one - lost
        following = total + addend
        lost = (following - total) - addend
        total = following
    return total


def pairwise(x: Row) -> Any:
    if len(x) < 2:
        return x[0] if len(x) else x.dtype.type(0)
    return pairwise(x[: len(x) // 2]) + pairwise(x[len(x) // 2 :])


ORDERS: dict[str, Callable[[Row], Any]] = {"sequential": sequential, "kahan": kahan, "pairwise": pairwise}


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "rows", lambda name, matrix: None)


def hard_rows(rows: int, columns: int, dtype: str) -> Row:
    """Numbers of many sizes and both signs, so that every order of summation gives other bits."""
    generator = np.random.default_rng(7)
    sizes = np.exp2(generator.uniform(-20, 20, (rows, columns)))
    return np.asarray(generator.standard_normal((rows, columns)) * sizes).astype(dtype)


@table(("op", "name", "dtype"), cases(list(CALLS)))
def test_kernels_agree_with_the_op_in_float64(op: str, name: str, dtype: str) -> None:
    check(op, name, dtype, CALLS[op])


@pytest.mark.parametrize("op", CALLS)
def test_ops_have_kernels_that_explain_themselves(op: str) -> None:
    check_records(op)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [0, 1, 2, 3, 7, 64, 1001])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_have_the_bits_of_their_formula(
    order: str, columns: int, dtype: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        without_compiler(monkeypatch)
    x = hard_rows(5, columns, dtype)
    right = np.array([ORDERS[order](row) for row in x], dtype)
    assert kernel("sum", order)(torch.from_numpy(x), [1]).numpy().tobytes() == right.tobytes()
    transposed = torch.from_numpy(np.ascontiguousarray(x.T))
    assert kernel("sum", order)(transposed, [0], True).numpy().tobytes() == right.tobytes()
    if columns:
        mean = right / np.asarray(columns, dtype)
        assert kernel("mean", order)(torch.from_numpy(x), [1]).numpy().tobytes() == mean.tobytes()


@given(st.integers(0, 300))
def test_halving_level_by_level_is_the_recursion(columns: int) -> None:
    x = hard_rows(2, columns, "float32")
    right = np.array([pairwise(row) for row in x], np.float32)
    assert sums.halved_rows(torch.from_numpy(x)).numpy().tobytes() == right.tobytes()


def test_pairwise_sum_keeps_negative_zero() -> None:
    assert torch.signbit(sums.halved_rows(torch.full((1, 5), -0.0))).all()


def test_bf16_rounds_every_addition() -> None:
    x = torch.from_numpy(hard_rows(3, 37, "float32"))

    def rounded(row: torch.Tensor) -> torch.Tensor:
        if len(row) == 1:
            return row[0]
        half = len(row) // 2
        return (rounded(row[:half]) + rounded(row[half:])).bfloat16().float()

    right = torch.stack([rounded(row.bfloat16().float()) for row in x])
    assert torch.equal(kernel("sum", "bf16")(x, [1]), right)


def test_orders_differ_and_kahan_is_the_most_accurate() -> None:
    x = torch.rand(20000, generator=torch.Generator().manual_seed(0))
    exact = x.double().sum().item()
    off = {name: abs(kernel("sum", name)(x).item() - exact) for name in ("sequential", "pairwise", "kahan")}
    assert off["kahan"] <= 2.0**-24 * exact
    assert off["sequential"] > 20 * max(off["pairwise"], off["kahan"])


def test_elements_are_taken_in_the_order_of_the_shape() -> None:
    x = torch.from_numpy(hard_rows(6, 8, "float32"))
    right = sequential(x.numpy().reshape(-1))
    for layout in (x, x.t().contiguous().t()):
        assert kernel("sum", "sequential")(layout).item() == right
    assert kernel("sum", "reversed")(x).item() == x.reshape(-1).flip(0).sum().item()


@pytest.mark.parametrize("order", ["sequential", "kahan"])
def test_long_sums_one_by_one_need_a_compiler(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    kernel("sum", order)(torch.ones(sums.LONGEST_SEQUENCE))
    with pytest.raises(NotAvailable, match="C compiler"):
        kernel("sum", order)(torch.ones(sums.LONGEST_SEQUENCE + 1))
    assert kernel("sum", "pairwise")(torch.ones(sums.LONGEST_SEQUENCE + 1)) == sums.LONGEST_SEQUENCE + 1


def test_integers_are_left_to_the_op() -> None:
    total = kernel("sum", "kahan")(torch.arange(5), dtype=torch.int64)
    assert (total.item(), total.dtype) == (10, torch.int64)
    assert kernel("sum", "kahan")(torch.ones(5, dtype=torch.bool)).item() == 5
    assert kernel("sum", "sequential")(torch.arange(5), dtype=torch.float32).item() == 10.0


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=40))
def test_reference_is_correctly_rounded(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    exact = sum(map(Fraction, values), Fraction(0))
    assert reductions.sum(x).item() == pytest.approx(float(exact), rel=2.0**-52, abs=0.0)


def test_reference_survives_cancellation_and_infinity() -> None:
    x = torch.tensor([1e30, 1.0, -1e30, 2.0**-40], dtype=torch.float64)
    assert reductions.sum(x).item() == 1 + 2.0**-40
    assert x.sum().item() != 1 + 2.0**-40
    assert reductions.mean(torch.tensor([torch.inf, 1.0], dtype=torch.float64)).item() == torch.inf
    assert reductions.sum(torch.tensor([torch.inf, -torch.inf], dtype=torch.float64)).isnan()
