from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ...row_by_row import table
from .parity import Call, Calls, Maker, call, cases, check, check_records, copied, leaves, registry

aten = torch.ops.aten
NUMBERS = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}


def lists(make: Maker, count: int) -> list[list[torch.Tensor]]:
    return [[make.positive(3, 4), make.positive(5), make.positive(0, 2)] for _ in range(count)]


def with_value(make: Maker) -> Iterator[Call]:
    a, b, c = lists(make, 3)
    yield call(a, b, c)
    yield call(a, b, c, 0.5)
    yield call(a, b, c, [0.5, 2.0, 3.0])
    yield call(a, b, c, torch.tensor([0.5, 2.0, 3.0]))


def lerp(make: Maker) -> Iterator[Call]:
    a, b, c = lists(make, 3)
    yield call(a, b, 0.1)
    yield call(a, b, [0.1, 0.75, 0.5])
    yield call(a, b, c)


def binary(make: Maker) -> Iterator[Call]:
    a, b = lists(make, 2)
    yield call(a, b)
    yield call(a, 2.5)
    yield call(a, [2.5, 0.25, 3.0])
    yield call(a, torch.tensor(2.5))


def add(make: Maker) -> Iterator[Call]:
    yield from binary(make)
    a, b = lists(make, 2)
    yield call(a, b, alpha=0.3)
    yield call(a, torch.tensor(1.0), alpha=1.0)


def sqrt(make: Maker) -> Iterator[Call]:
    yield call(lists(make, 1)[0])


def adam(make: Maker) -> Iterator[Call]:
    steps = [torch.tensor(float(step)) for step in (1, 7, 3)]
    for amsgrad, maximize, decay in ((False, False, 0.0), (True, True, 0.1)):
        state = lists(make, 5) if amsgrad else [*lists(make, 4), []]
        numbers = {**NUMBERS, "weight_decay": decay}
        yield call(*state, steps, **numbers, amsgrad=amsgrad, maximize=maximize)
    scaled: dict[str, Any] = {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
    scaled |= {**NUMBERS, "lr": torch.tensor(1e-2)}
    yield call(*lists(make, 4), [], steps, amsgrad=False, maximize=False, **scaled)


CALLS: dict[str, Calls] = {
    "_foreach_addcmul": with_value,
    "_foreach_addcdiv": with_value,
    "_foreach_lerp": lerp,
    "_foreach_mul": binary,
    "_foreach_add": add,
    "_foreach_div": binary,
    "_foreach_sqrt": sqrt,
    "_fused_adam_": adam,
    "_fused_adamw_": adam,
    "_fused_adam": adam,
    "_fused_adamw": adam,
}
FOREACH = [op for op in CALLS if op.startswith("_foreach")]


def kernel(op: str, name: str) -> Any:
    return registry().kernel(op, name).load()


@pytest.mark.slow
@table(("op", "name", "dtype"), cases(list(CALLS)))
def test_kernels_agree_with_the_op_in_float64(op: str, name: str, dtype: str) -> None:
    check(op, name, dtype, CALLS[op])


@pytest.mark.parametrize("op", CALLS)
def test_ops_have_kernels_that_explain_themselves(op: str) -> None:
    check_records(op)


@pytest.mark.parametrize("op", FOREACH)
def test_per_tensor_has_the_bits_of_the_cpus_slow_path(op: str) -> None:
    for one in CALLS[op](Maker(torch.float32)):
        right = getattr(aten, op)(*one.args, **one.kwargs)
        assert all(map(torch.equal, kernel(op, "per_tensor")(*one.args, **one.kwargs), right))


@pytest.mark.parametrize(
    ("op", "right"),
    [
        ("_foreach_addcmul", lambda a, b, c: a + 0.3 * (b * c)),
        ("_foreach_addcdiv", lambda a, b, c: a + 0.3 * (b / c)),
        ("_foreach_lerp", lambda a, b, c: a + 0.3 * (b - a)),
    ],
)
def test_decomposed_rounds_each_operation(op: str, right: Any) -> None:
    make = Maker(torch.float32)
    a, b, c = make(1000), make(1000), make.positive(1000)
    given = ([a], [b], 0.3) if op == "_foreach_lerp" else ([a], [b], [c], 0.3)
    assert torch.equal(kernel(op, "decomposed")(*given)[0], right(a, b, c))


def test_reciprocal_rounds_twice() -> None:
    a = Maker(torch.float32).positive(1000)
    actual = kernel("_foreach_div", "reciprocal")([a], 3.0)[0]
    assert torch.equal(actual, a * torch.tensor(1 / 3.0))
    assert not torch.equal(actual, a / 3.0)


def test_bf16_stops_counts_of_steps() -> None:
    assert kernel("_foreach_add", "bf16")([torch.tensor(256.0)], 1)[0] == 256
    assert kernel("_foreach_add", "per_tensor")([torch.tensor(256.0)], 1)[0] == 257


def trained(optimizer: type[torch.optim.Optimizer], step: int, **settings: Any) -> list[list[torch.Tensor]]:
    """Parameter, gradient and state before a step, and then after it, of torch's single-tensor optimizer."""
    make = Maker(torch.float32)
    parameter = torch.nn.Parameter(make(2000))
    parameter.grad = make(2000)
    state = {"step": torch.tensor(float(step)), "exp_avg": make(2000), "exp_avg_sq": make.positive(2000)}
    if settings["amsgrad"]:
        state["max_exp_avg_sq"] = make.positive(2000)
    one = optimizer([parameter], foreach=False, **settings)  # type: ignore[call-arg]
    one.state[parameter] = state
    moments = [value for name, value in state.items() if name != "step"]
    before = copied([parameter.detach(), parameter.grad, *moments])
    one.step()
    return [before, [parameter.detach(), parameter.grad, *moments]]


@pytest.mark.parametrize("step", [0, 1, 100, 9999])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize(
    ("op", "optimizer"), [("_fused_adam_", torch.optim.Adam), ("_fused_adamw_", torch.optim.AdamW)]
)
def test_decomposed_has_the_bits_of_the_single_tensor_optimizer(
    op: str, optimizer: type[torch.optim.Optimizer], amsgrad: bool, step: int
) -> None:
    settings = {"lr": 1e-3, "weight_decay": 0.01, "amsgrad": amsgrad, "eps": 1e-8}
    before, after = trained(optimizer, step, **settings)
    state = [[one] for one in before] + ([] if amsgrad else [[]])
    steps = [torch.tensor(step + 1.0)]
    kernel(op, "decomposed")(*state, steps, **settings, beta1=0.9, beta2=0.999, maximize=False)
    assert all(map(torch.equal, leaves(state), after))


@pytest.mark.parametrize("name", ["aten", "decomposed", "capturable", "fp64", "bf16_moments"])
@pytest.mark.parametrize("op", ["_fused_adam", "_fused_adamw"])
def test_functional_forms_have_the_bits_of_those_that_write(op: str, name: str) -> None:
    for one in adam(Maker(torch.float32)):
        before, written = copied(list(one.args)), copied(list(one.args))
        results = kernel(op, name)(*before, **one.kwargs)
        assert kernel(f"{op}_", name)(*written, **one.kwargs) is None
        assert all(map(torch.equal, leaves(list(results)), leaves(written[:5])))
        assert all(map(torch.equal, leaves(before), leaves(list(one.args))))


@pytest.mark.parametrize("name", ["aten", "decomposed", "capturable", "fp64", "bf16_moments"])
@pytest.mark.parametrize("op", ["_fused_adam_", "_fused_adamw_"])
def test_nothing_is_written_when_an_infinity_was_found(op: str, name: str) -> None:
    *_, one = adam(Maker(torch.float32))
    state = copied(list(one.args))
    kernel(op, name)(*state, **{**one.kwargs, "found_inf": torch.tensor(1.0)})
    assert all(map(torch.equal, leaves(state), leaves(list(one.args))))


def test_moments_are_stored_in_bfloat16() -> None:
    one = next(adam(Maker(torch.float32)))
    state = copied(list(one.args))
    kernel("_fused_adam_", "bf16_moments")(*state, **one.kwargs)
    for moment in leaves(state[2:4]):
        assert torch.equal(moment, moment.bfloat16().float())
    assert not torch.equal(state[0][0], state[0][0].bfloat16().float())
