from __future__ import annotations

import numpy as np
import pytest
import torch

from numdrift.harness.errors import UsageError
from numdrift.kernels.lab.arguments import Case
from numdrift.kernels.lab.calls import LabCall
from numdrift.kernels.lab.reference import describe, expected
from numdrift.kernels.registry import Operation, built_in


def case(*calls: tuple[object, ...]) -> Case:
    return Case("random", "", tuple(LabCall(args, {}) for args in calls))


def plain(op: str) -> Operation:
    return Operation(op, "", "")


def test_an_op_without_a_reference_is_replayed_in_float64() -> None:
    x = torch.rand(50, generator=torch.Generator().manual_seed(0))
    (found,) = expected(plain("exp"), case((x,)), 0)
    np.testing.assert_allclose(found.values, np.exp(x.double().numpy()), rtol=1e-15)
    assert len(found.positions) == 50 and not found.remainders.any()


def test_an_exact_op_is_evaluated_beyond_float64() -> None:
    # given 1 - y*y of which float64 keeps half of the digits
    y, g = torch.tensor([1 - 2.0**-30], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    (found,) = expected(built_in().operation("tanh_backward"), case((g, y)), 0)
    assert found.values[0] == 2.0**-29 - 2.0**-60
    # of 3 * 2**-53 + the product's rest nothing is lost
    y = torch.tensor([0.1], dtype=torch.float64)
    (found,) = expected(built_in().operation("tanh_backward"), case((g, y)), 0)
    assert 0 < abs(found.remainders[0]) < 2.0**-53


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8)], ids=str)
def test_the_sensitivity_of_a_square_is_two_roundings(dtype: torch.dtype, unit: float) -> None:
    # given x*x, of which x(1 + u) is x*x*(1 + 2u + u*u)
    x = torch.linspace(0.5, 2, 200).to(dtype)
    (found,) = expected(plain("square"), case((x,)), 0)
    assert found.sensitivity is not None
    squares = x.double().numpy() ** 2
    np.testing.assert_allclose(found.sensitivity / squares, 2 * unit, rtol=unit)


def test_the_sensitivity_is_reproducible_and_absent_for_float64() -> None:
    x = torch.rand(20)
    (one,), (again,) = (expected(plain("sin"), case((x,)), 7) for _ in range(2))
    assert one.sensitivity is not None and again.sensitivity is not None
    assert np.array_equal(one.sensitivity, again.sensitivity)
    assert expected(plain("sin"), case((x.double(),)), 7)[0].sensitivity is None


def test_steps_of_an_optimizer_are_not_rounded() -> None:
    # given Adam in bfloat16 with a step count in float32
    from_ones = [torch.ones(3, dtype=torch.bfloat16) for _ in range(4)]
    settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False}  # fmt: skip
    call = LabCall((*([one] for one in from_ones), [], [torch.tensor(3.0)]), settings)
    # when
    found = expected(plain("_fused_adam_"), Case("random", "", (call,)), 0)
    # then its outputs are the tensors that Adam writes, and the arguments stay as they were
    assert [one.name for one in found] == ["self", "grads", "exp_avgs", "exp_avg_sqs"]
    assert all(bool((one == 1).all()) for one in from_ones)
    assert call.args[5][0] == 3


def test_an_op_that_draws_has_no_reference_and_the_generator_stays() -> None:
    state = torch.get_rng_state()
    with pytest.raises(UsageError, match="native_dropout draws random numbers"):
        expected(plain("native_dropout"), case((torch.ones(200), 0.5, True)), 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_attention_without_dropout_has_one_although_torch_calls_it_random() -> None:
    q = torch.rand(1, 1, 4, 8)
    assert len(expected(plain("scaled_dot_product_attention"), case((q, q, q)), 0)) == 1


def test_an_op_that_has_no_float64_says_so() -> None:
    with pytest.raises(UsageError, match=r"op _weight_int4pack_mm.* cannot be executed in float64: .+"):
        expected(plain("_weight_int4pack_mm"), case((torch.rand(2, 2), torch.rand(2, 2), 32, torch.rand(2))), 0)


def test_the_reference_is_described() -> None:
    exact = built_in().operation("tanh_backward")
    assert describe(exact, torch.float64) == "exact, in mpmath with 50 or more digits"
    assert describe(plain("exp"), torch.float32) == "op executed in float64"
    assert "no more precise" in describe(plain("exp"), torch.float64)
