"""Every kernel of rows.c against a loop over numpy's scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from numdrift.kernels.native import library
from numdrift.kernels.native.library import rows

needs_native = pytest.mark.skipif(
    not library.status().startswith("native"), reason=f"no C kernels here: {library.status()}"
)


def sequential(row: Any) -> Any:
    total = row.dtype.type(0)
    for one in row:
        total = total + one
    return total


def pairwise(row: Any) -> Any:
    if len(row) < 2:
        return row[0] if len(row) else row.dtype.type(0)
    half = len(row) // 2
    return pairwise(row[:half]) + pairwise(row[half:])


def kahan(row: Any) -> Any:
    total = lost = row.dtype.type(0)
    for one in row:
        addend = one - lost
        following = total + addend
        lost = (following - total) - addend
        total = following
    return total


LOOPS: dict[str, Callable[[Any], Any]] = {
    "sum_sequential": sequential,
    "sum_pairwise": pairwise,
    "sum_kahan": kahan,
}


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("columns", [0, 1, 2, 3, 7, 64, 1000])
def test_a_sum_adds_in_its_order(name: str, dtype: torch.dtype, columns: int) -> None:
    # given numbers of any size and sign
    made = torch.Generator().manual_seed(columns)
    matrix = torch.randn(6, columns, generator=made, dtype=dtype)
    matrix *= 2.0 ** torch.randint(-20, 20, matrix.shape, generator=made)
    # when
    result = rows(name, matrix)
    # then
    assert result is not None and result.dtype == dtype and result.shape == (6,)
    assert result.tolist() == [float(LOOPS[name](row)) for row in matrix.numpy()]


@needs_native
def test_the_orders_differ_and_kahan_is_the_most_accurate() -> None:
    matrix = torch.rand(20, 10_000, generator=torch.Generator().manual_seed(1))
    exact = matrix.double().sum(1)
    errors = {}
    for name in LOOPS:
        result = rows(name, matrix)
        assert result is not None
        errors[name] = float((result.double() - exact).abs().max())
    assert errors["sum_kahan"] <= errors["sum_pairwise"] < errors["sum_sequential"]


@needs_native
@pytest.mark.parametrize("name", LOOPS)
def test_infinities_and_nan_go_through(name: str) -> None:
    matrix = torch.tensor([[1.0, np.inf, 2.0], [np.inf, -np.inf, 1.0], [np.nan, 1.0, 1.0]])
    result = rows(name, matrix)
    assert result is not None
    assert result[1:].isnan().all()
    assert result[0].isnan() if name == "sum_kahan" else result[0] == np.inf


@needs_native
def test_a_matrix_may_have_any_strides() -> None:
    wide = torch.randn(50, 40)
    for matrix in (wide.t(), wide[:, 3::2], wide[5:], wide[:1].expand(4, 40), wide[:0]):
        result, expected = rows("sum_sequential", matrix), rows("sum_sequential", matrix.clone())
        assert result is not None and expected is not None and torch.equal(result, expected)


def test_another_name_or_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="sum_backwards"):
        rows("sum_backwards", torch.ones(2, 2))
    with pytest.raises(ValueError, match="1 dimensions"):
        rows("sum_kahan", torch.ones(2))


def test_what_cannot_be_read_is_left_to_torch() -> None:
    for matrix in (
        torch.ones(2, 2, dtype=torch.int64),
        torch.ones(2, 2, device="meta"),
        torch.ones(2, 2).half(),
    ):
        assert rows("sum_kahan", matrix) is None
