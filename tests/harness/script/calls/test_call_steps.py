"""The steps of calls: results, gradients, inputs that are written to, and the facts of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from numdrift.harness.errors import UsageError
from numdrift.harness.script.calls.call_steps import (
    Called,
    CalledTarget,
    cotangent,
    execute,
    expected_results,
    make_calls,
    targets_of,
)
from numdrift.harness.script.calls.planned_call import PlannedCall


def made(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the facts of a call that is made once."""
    call = PlannedCall("the call", function, args, kwargs)
    events: list[dict[str, Any]] = []
    targets = targets_of([call], [expected_results(call)])
    make_calls([call], targets, "cpu", lambda event, **facts: events.append(facts), compiles=False)
    return events[0]


def results(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Mapping[str, torch.Tensor]:
    return expected_results(PlannedCall("the call", function, args, kwargs)) or {}


def test_outputs_and_gradients_are_those_of_autograd() -> None:
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    found = results(lambda x, w: ((x * w).tanh(), x.sum()), x, w)
    y, total = (x * w).tanh(), x.sum()
    torch.autograd.backward([y, total], [cotangent(y, 0), cotangent(total, 1)])
    assert x.grad is not None
    assert w.grad is not None
    assert list(found) == ["output_0", "output_1", "grad_x", "grad_w"]
    assert torch.equal(found["output_0"], y)
    assert torch.equal(found["grad_x"], x.grad)
    assert torch.equal(found["grad_w"], w.grad)


def test_a_call_that_draws_says_so() -> None:
    assert made(torch.nn.functional.dropout, torch.ones(3))["draws"]
    assert not made(torch.tanh, torch.ones(3))["draws"]


def test_an_input_that_is_written_to_is_a_result() -> None:
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    assert list(results(scale, torch.ones(3))) == ["output", "written_x"]
    leaf = torch.ones(3, requires_grad=True)  # torch refuses to write to it, so the call gets a copy
    found = results(scale, leaf)
    assert found["written_x"].tolist() == [2, 2, 2]
    assert found["grad_x"].tolist() == (2 * cotangent(leaf, 0)).tolist()
    assert leaf.tolist() == [1, 1, 1]


def test_a_function_without_a_backward_is_called_without_gradients() -> None:
    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            raise NotImplementedError

    assert list(results(Forward.apply, torch.ones(2, requires_grad=True))) == ["output"]


def test_the_facts_of_a_call() -> None:
    def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y.add_(1)
        z = x * 2
        return x[::2], z, z[0], x > 0

    facts = made(views, torch.randn(4), torch.zeros(2))
    first, second, third, fourth = facts["results"]
    assert (first["alias"], first["stride"]) == ("x", (2,))
    assert second["alias"] == ""
    assert third["alias"] == "output_1"
    assert fourth["dtype"] == "bool"
    assert facts["mutated"] == ("y",)


def test_a_write_that_changes_nothing_is_none() -> None:
    assert made(lambda x: x.mul_(1) + 0, torch.full((2,), float("nan")))["mutated"] == ()


def test_an_error_is_a_fact() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("a bad value\nwith a second line")

    assert made(fails, torch.ones(1))["raised"] == "ValueError: a bad value"


def test_a_function_must_compute_a_tensor() -> None:
    with pytest.raises(UsageError, match="returns no tensor"):
        results(lambda x: 3, torch.ones(1))


def test_results_of_several_shapes_have_a_parameter_each() -> None:
    call = PlannedCall("the call", torch.relu, (torch.ones(2),), {})
    target = CalledTarget(Called(call.function))
    for value in (torch.ones(2), torch.ones(3), torch.ones(2), torch.ones(2, dtype=torch.int64)):
        target.add_result("output", value)
    assert [name for name, _ in target.called.named_parameters()] == ["output", "output_2"]
    assert [name for name, _ in target.called.named_buffers()] == ["output_3"]


def test_a_module_is_put_back_before_each_call() -> None:
    norm = torch.nn.BatchNorm1d(3)
    call = PlannedCall("the call", norm, (torch.randn(4, 3),), {})
    first = execute(call, norm, "").results()["output"]
    assert norm.running_mean is not None
    assert norm.running_mean.any()
    call.state.restore()
    assert not norm.running_mean.any()
    assert torch.equal(execute(call, norm, "").results()["output"], first)


def test_every_call_draws_the_same_numbers() -> None:
    call = PlannedCall("the call", torch.nn.functional.dropout, (torch.ones(64), 0.5), {}, seed=3)
    first, second = (execute(call, call.function, "").results()["output"] for _ in range(2))
    assert torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, torch.nn.functional.dropout(torch.ones(64), 0.5))
