from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ...row_by_row import table
from .parity import Call, Calls, Maker, call, cases, check, check_records, distance, registry

aten = torch.ops.aten
FORMS = ("two_pass", "one_pass", "shifted", "welford", "reversed", "bf16", "fp64", "decomposed")


def layer_norm(make: Maker) -> Iterator[Call]:
    yield call(make(4, 6, 5), [5], make(5), make(5), 1e-5)
    yield call(make(4, 6, 5), [6, 5], None, None, 1e-5)
    yield call(make(3, 150), [150], make(150), None, 1e-5)
    yield call(make(7), [7], make(7), make(7), 1e-5)
    yield call(make(0, 5), [5], make(5), make(5), 1e-5)
    if make.dtype in (torch.bfloat16, torch.float16):
        parameters = Maker(torch.float32, make.layout)
        yield call(make(4, 5), [5], parameters(5), parameters(5), 1e-5)


def layer_norm_backward(make: Maker) -> Iterator[Call]:
    weight, bias = make(5), make(5)
    x = make(4, 6, 5)
    _, mean, rstd = aten.native_layer_norm(x, [5], weight, bias, 1e-5)
    for mask in ([True, True, True], [True, False, False], [False, True, True]):
        yield call(make(4, 6, 5), x, [5], mean, rstd, weight, bias, mask)
    yield call(make(4, 6, 5), x, [5], mean, rstd, None, None, [True, False, False])


def batch_norm(make: Maker) -> Iterator[Call]:
    for training in (True, False):
        statistics = (make(6), make.positive(6), training, 0.1, 1e-5)
        yield call(make(4, 6, 5), make(6), make(6), *statistics)
        yield call(make(2, 6, 3, 4), None, None, *statistics)
        yield call(make(70, 6), make(6), None, *statistics)
        if make.dtype in (torch.bfloat16, torch.float16):
            wide = Maker(torch.float32)
            yield call(make(4, 6, 5), wide(6), wide(6), wide(6), wide.positive(6), training, 0.1, 1e-5)


def native_batch_norm(make: Maker) -> Iterator[Call]:
    yield from batch_norm(make)
    yield call(make(4, 6, 5), make(6), make(6), None, None, True, 0.1, 1e-5)


def legit_batch_norm(make: Maker) -> Iterator[Call]:
    yield from batch_norm(make)
    yield call(make(4, 6, 5), make(6), make(6), True, 0.1, 1e-5)


def no_training_batch_norm(make: Maker) -> Iterator[Call]:
    yield call(make(4, 6, 5), make(6), make(6), make(6), make.positive(6), 0.1, 1e-5)
    yield call(make(4, 6), None, None, make(6), make.positive(6), 0.1, 1e-5)
    yield call(make(0, 6), None, make(6), make(6), make.positive(6), 0.1, 1e-5)


def batch_norm_backward(make: Maker) -> Iterator[Call]:
    x, weight, running = make(4, 6, 5), make(6), (make(6), make.positive(6))
    _, mean, invstd = aten.native_batch_norm(x, weight, None, None, None, True, 0.1, 1e-5)
    gradient = make(4, 6, 5)
    yield call(gradient, x, weight, *running, mean, invstd, True, 1e-5, [True, True, True])
    yield call(gradient, x, weight, None, None, mean, invstd, True, 1e-5, [True, False, False])
    yield call(gradient, x, None, *running, mean, invstd, True, 1e-5, [True, False, True])
    yield call(gradient, x, weight, *running, mean[:0], invstd[:0], False, 1e-5, [True, True, True])


CALLS: dict[str, Calls] = {
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "native_batch_norm": native_batch_norm,
    "_native_batch_norm_legit": legit_batch_norm,
    "_native_batch_norm_legit_functional": batch_norm,
    "_native_batch_norm_legit_no_training": no_training_batch_norm,
    "native_batch_norm_backward": batch_norm_backward,
}


def kernel(op: str, name: str) -> Any:
    return registry().kernel(op, name).load()


def far_from_zero(*shape: int) -> torch.Tensor:
    """Mean 1000, deviation 0.1."""
    return 1000 + 0.1 * torch.randn(*shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:var_mean")
@table(("op", "name", "dtype"), cases(list(CALLS)))
def test_kernels_agree_with_the_op_in_float64(op: str, name: str, dtype: str) -> None:
    check(op, name, dtype, CALLS[op])


@pytest.mark.parametrize("op", CALLS)
def test_ops_have_kernels_that_explain_themselves(op: str) -> None:
    check_records(op)


def test_only_the_one_pass_form_cancels_far_from_zero() -> None:
    x = far_from_zero(8, 256)
    right = aten.native_layer_norm(x.double(), [256], None, None, 1e-5)[0]
    for name in ("two_pass", "shifted", "welford", "reversed"):
        # Their inputs' own rounding, half a unit of 2**-14 beside a deviation of 0.1, is not counted here.
        assert distance(kernel("native_layer_norm", name)(x, [256], None, None, 1e-5)[0], right) < 2e-3
    one_pass = kernel("native_layer_norm", "one_pass")(x, [256], None, None, 1e-5)[0]
    assert one_pass.isnan().any() or distance(one_pass, right) > 0.1


def test_raw_sums_and_linear_form_cancel_far_from_zero() -> None:
    x = far_from_zero(64, 3)
    g = torch.randn(64, 3, generator=torch.Generator().manual_seed(5))
    _, mean, invstd = aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    given = (None, None, None, mean, invstd, True, 1e-5, [True, True, True])
    wide = (None, None, None, mean.double(), invstd.double(), True, 1e-5, [True, True, True])
    right = aten.native_batch_norm_backward(g.double(), x.double(), *wide)[1]
    off = {
        name: distance(kernel("native_batch_norm_backward", name)(g, x, *given)[1], right)
        for name in ("centered", "raw_sums")
    }
    assert off["centered"] < 1e-6
    assert off["raw_sums"] > 1e-4


@pytest.mark.parametrize("name", ["aten", *FORMS])
def test_running_statistics_follow_step_after_step(name: str) -> None:
    generator = torch.Generator().manual_seed(4)
    tracked = {one: (torch.zeros(3), torch.ones(3)) for one in ("aten", "kernel")}
    for _ in range(4):
        x = torch.randn(5, 3, 4, generator=generator)
        aten.native_batch_norm(x, None, None, *tracked["aten"], True, 0.3, 1e-5)
        kernel("native_batch_norm", name)(x, None, None, *tracked["kernel"], True, 0.3, 1e-5)
    bound = 0.05 if name == "bf16" else 1e-6
    for like, one in zip(tracked["aten"], tracked["kernel"], strict=True):
        assert distance(one, like) < bound
        assert distance(one, torch.zeros(3)) > 0.01
    before = [one.clone() for one in tracked["kernel"]]
    kernel("native_batch_norm", name)(x, None, None, *tracked["kernel"], False, 0.3, 1e-5)
    assert all(map(torch.equal, before, tracked["kernel"]))


@pytest.mark.parametrize("name", ["two_pass", "one_pass", "shifted", "welford", "reversed", "bf16"])
def test_functional_batch_norm_has_the_bits_of_the_one_that_writes(name: str) -> None:
    make = Maker(torch.float32)
    x, weight, bias, mean, var = make(4, 6, 5), make(6), make(6), make(6), make.positive(6)
    given = (x, weight, bias, mean, var, True, 0.1, 1e-5)
    functional = kernel("_native_batch_norm_legit_functional", name)(*given)
    written = kernel("native_batch_norm", name)(*given)
    assert all(map(torch.equal, functional, (*written, mean, var)))


@pytest.mark.parametrize("name", ["two_pass", "one_pass", "welford", "shifted"])
def test_batch_norm_refuses_to_train_on_nothing(name: str) -> None:
    mean, var = torch.zeros(3), torch.ones(3)
    with pytest.raises(ValueError, match="at least one element"):
        kernel("native_batch_norm", name)(torch.empty(0, 3), None, None, mean, var, True, 0.1, 1e-5)
    assert torch.equal(mean, torch.zeros(3))
    empty = kernel("native_batch_norm", name)(torch.empty(0, 3), None, None, mean, var, False, 0.1, 1e-5)
    assert empty[0].shape == (0, 3)


def test_one_element_has_no_unbiased_variance_as_in_aten() -> None:
    for name in ("aten", "two_pass", "welford"):
        var = torch.ones(3)
        kernel("native_batch_norm", name)(torch.ones(1, 3), None, None, torch.zeros(3), var, True, 0.1, 1e-5)
        assert var.isnan().all()
