from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ...row_by_row import table
from .parity import Call, Calls, Maker, call, cases, check, check_records, registry

aten = torch.ops.aten


def forward(make: Maker) -> Iterator[Call]:
    yield call(make(4, 6, 5), 1, False)
    yield call(make(4, 6, 5), -1, False)
    yield call(make(3, 200), 1, False)
    yield call(make(2, 64), 1, False)
    yield call(make(0, 4), 0, False)
    yield call(make(), 0, False)


def safe(make: Maker) -> Iterator[Call]:
    for one in forward(make):
        yield call(*one.args[:2])
    hidden = make(3, 70)
    hidden[1] = -torch.inf
    yield call(hidden, 1)


def softmax_backward(make: Maker) -> Iterator[Call]:
    yield call(make(4, 6, 5), make(4, 6, 5).softmax(1), 1, make.dtype)
    yield call(make(2, 200), make(2, 200).softmax(-1), -1, make.dtype)
    yield call(make(0, 5), make(0, 5), 1, make.dtype)


def log_softmax_backward(make: Maker) -> Iterator[Call]:
    yield call(make(4, 6, 5), make(4, 6, 5).log_softmax(1), 1, make.dtype)
    yield call(make(2, 200), make(2, 200).log_softmax(-1), -1, make.dtype)
    yield call(make(0, 5), make(0, 5), 1, make.dtype)


CALLS: dict[str, Calls] = {
    "_softmax": forward,
    "_log_softmax": forward,
    "_safe_softmax": safe,
    "_softmax_backward_data": softmax_backward,
    "_log_softmax_backward_data": log_softmax_backward,
}


def kernel(op: str, name: str) -> Any:
    return registry().kernel(op, name).load()


@table(("op", "name", "dtype"), cases(list(CALLS)))
def test_kernels_agree_with_the_op_in_float64(op: str, name: str, dtype: str) -> None:
    check(op, name, dtype, CALLS[op])


@pytest.mark.parametrize("op", CALLS)
def test_ops_have_kernels_that_explain_themselves(op: str) -> None:
    check_records(op)


def test_without_max_overflows_where_the_others_do_not() -> None:
    x = torch.tensor([[100.0, 99.0, 0.0]])
    right = torch.softmax(x.double(), 1).float()
    for name in ("online", "reversed", "fp64", "decomposed"):
        torch.testing.assert_close(kernel("_softmax", name)(x, 1, False), right)
    assert kernel("_softmax", "without_max")(x, 1, False).isnan().tolist() == [[True, True, False]]
    assert kernel("_log_softmax", "without_max")(x, 1, False).isinf().all()


def test_log_of_softmax_loses_what_underflows() -> None:
    x = torch.tensor([[0.0, -200.0]])
    assert kernel("_log_softmax", "log_of_softmax")(x, 1, False)[0, 1] == -torch.inf
    assert kernel("_log_softmax", "online")(x, 1, False)[0, 1] == -200


@pytest.mark.parametrize("hidden", [64, 65, 128, 200])
@pytest.mark.parametrize("op", ["_softmax", "_log_softmax"])
def test_online_form_takes_masked_blocks(op: str, hidden: int) -> None:
    x = torch.randn(2, 200, generator=torch.Generator().manual_seed(0))
    x[0, :hidden] = -torch.inf
    x[1, 200 - hidden :] = -torch.inf
    right = getattr(aten, op)(x.double(), 1, False).float()
    torch.testing.assert_close(kernel(op, "online")(x, 1, False), right, equal_nan=True)


@pytest.mark.parametrize("special", [torch.inf, torch.nan])
@pytest.mark.parametrize("name", ["online", "reversed", "without_max"])
def test_infinity_and_nan_spoil_their_row_only(name: str, special: float) -> None:
    x = torch.zeros(2, 100)
    x[0, 70] = special
    y = kernel("_softmax", name)(x, 1, False)
    assert y[0, 70].isnan()
    assert torch.equal(y[1], torch.full((100,), 0.01))


def test_bf16_rounds_every_operation() -> None:
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))
    narrow = x.bfloat16()
    exponentials = torch.exp(narrow - narrow.amax(1, keepdim=True))
    right = (exponentials / exponentials.sum(1, keepdim=True)).float()
    assert torch.equal(kernel("_softmax", "bf16")(x, 1, False), right)
    assert not torch.equal(aten._softmax(narrow, 1, False).float(), right)
