"""Losses and parameters of trainings that say little of themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import vmap

from numdrift.harness.script.script_losses import (
    ScaledLosses,
    StepLosses,
    differentiates_parameters,
    leaves_of,
    report_gradient_functions,
)
from numdrift.harness.script.without_optimizer import find_modules, find_names, tree_names


def weight(*values: float) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(values or (1.0, 2.0)))


def test_a_logged_loss_counts_before_a_backward_and_a_backward_before_a_gradient() -> None:
    losses = StepLosses()
    losses.add("gradient", [torch.tensor(1.0)])
    losses.add("backward", [torch.tensor(2.0), torch.tensor(3.0)])
    assert [loss.item() for loss in losses.take()] == [2.0, 3.0]
    assert not losses.any
    losses.add("backward", [torch.tensor(2.0)])
    losses.add("logged", [torch.tensor(4.0)])
    assert [loss.item() for loss in losses.take()] == [4.0]
    assert losses.take() == ()


def test_the_loss_behind_a_scaled_one_is_found_and_scaled_ones_are_not_kept_alive() -> None:
    scaled, scaler = ScaledLosses(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = (weight() * 3).sum()
    large = scaler.scale(loss)
    scaled.scaled(loss, large)
    assert [one.item() for one in scaled.unscaled([large])] == [9.0]
    other = torch.tensor(5.0)
    assert scaled.unscaled([other])[0] is other
    del large
    scaled.scaled(loss, scaler.scale(loss))
    assert len(scaled._pairs) == 1


def test_a_gradient_penalty_stands_for_no_backward() -> None:
    parameter = weight()
    loss, inputs = (parameter**2).sum(), torch.ones(2, requires_grad=True)
    assert differentiates_parameters(loss, [parameter], {}, plain=False)
    assert not differentiates_parameters(loss, [parameter], {"create_graph": True}, plain=True)
    assert not differentiates_parameters(parameter**2, [parameter], {}, plain=True)
    assert not differentiates_parameters(loss, [inputs], {}, plain=False)
    assert differentiates_parameters(loss, [inputs], {}, plain=True)


def test_leaves_are_those_that_a_backward_fills() -> None:
    used, frozen, unused = weight(), torch.tensor([1.0, 2.0]), weight()
    loss = (used * frozen).sum() + used.detach().sum()
    found = leaves_of([loss])
    loss.backward()
    assert found == [used]
    assert used.grad is not None and unused.grad is None


class Functions:
    """Lists what is reported."""

    def __init__(self, adopt: Any = None) -> None:
        self.called: list[Any] = []
        self.returned: list[Any] = []
        self.adopt = adopt

    def function_called(self, arguments: Any) -> None:
        self.called.append(arguments)

    def adopted(self, function: Any) -> Any:
        return None if self.adopt is None else self.adopt(function)

    def function_returned(self, arguments: Any, gradients: Any, loss: Any) -> None:
        self.returned.append((gradients, loss))


def square(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return (parameters["w"] * x).square().sum()


@pytest.mark.parametrize("adopted", [False, True], ids=["as it is", "adopted"])
def test_a_gradient_function_gives_what_it_gave_and_is_reported_once(adopted: bool) -> None:
    parameters, x = {"w": torch.tensor([1.0, 2.0])}, torch.tensor([3.0, 4.0])
    plain = torch.func.grad(square)(parameters, x)
    both = torch.func.grad_and_value(square)(parameters, x)
    observer = Functions((lambda function: function) if adopted else None)
    remove = report_gradient_functions(observer)
    try:
        assert torch.equal(torch.func.grad(square)(parameters, x)["w"], plain["w"])
        gradients, value = torch.func.grad_and_value(square)(parameters, x)
        batched = vmap(torch.func.grad(square), (None, 0))(parameters, x.reshape(1, 2))
    finally:
        remove()
    assert torch.equal(gradients["w"], both[0]["w"]) and torch.equal(value, both[1])
    assert torch.equal(batched["w"][0], plain["w"])
    assert [one[0] is parameters for one in observer.called] == [True, True]
    assert [loss.item() for _, loss in observer.returned] == ([both[1].item()] * 2 if adopted else [])
    before = len(observer.called)
    torch.func.grad(square)(parameters, x)
    assert len(observer.called) == before


def test_tensors_are_named_by_the_variables_that_hold_them() -> None:
    alone, layers, named = weight(), [weight(), weight()], {"fc.bias": weight()}
    holder = type("Holder", (), {})()
    holder.inner = weight()
    wanted = [named["fc.bias"], layers[1], alone, holder.inner]
    assert find_names(wanted) == ["fc.bias", "layers.1", "alone", "inner"]
    unknown = find_names([torch.zeros(1)])
    assert unknown == ["parameter.0"]


def test_a_module_that_an_object_holds_is_found() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))

        def look(self) -> list[torch.nn.Module]:
            return find_modules(list(self.net.parameters())[1:])

    trainer = Trainer()
    assert trainer.look() == [trainer.net]


def test_trees_are_named_by_their_paths() -> None:
    tree = {"a": [torch.zeros(1), {"b": torch.ones(1)}], "c": (torch.ones(2),)}
    assert [name for name, _ in tree_names(tree)] == ["a.0", "a.1.b", "c.0"]
