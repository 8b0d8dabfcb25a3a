"""The state that a call reaches: what a script changes between two calls is put back."""

from __future__ import annotations

from typing import Any

import torch

from numdrift.harness.script.calls.reached_state import ReachedState


class Setting:
    factor = 1.0


LIMIT = 3
HELD = {"tensor": torch.ones(2)}


def limited(x: torch.Tensor) -> torch.Tensor:
    return (x * Setting.factor).clamp(max=LIMIT) + HELD["tensor"]


def test_variables_and_attributes_that_a_function_names() -> None:
    global LIMIT
    state = ReachedState(limited, (), {})
    Setting.factor, LIMIT, held = 10.0, 5, HELD["tensor"]
    state.restore()
    assert (Setting.factor, LIMIT) == (1.0, 3)
    assert HELD["tensor"] is held


def test_modules_with_their_flags_tensors_and_submodules() -> None:
    linear, norm = torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)
    module, weight = torch.nn.Sequential(linear, norm), linear.weight
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = ReachedState(module, (), {})

    module.eval()
    weight.requires_grad_(False)
    module[1] = torch.nn.Identity()
    other: Any = torch.nn.Linear(2, 2)
    object.__setattr__(module, "extra", other)
    with torch.no_grad():
        weight.add_(1)
    norm(torch.randn(4, 2))
    weight.grad = torch.ones_like(weight)
    state.restore()

    assert module.training
    assert norm.training
    assert module[1] is norm
    assert weight.requires_grad
    assert weight.grad is None
    assert not hasattr(module, "extra")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_module_in_a_closure_is_reached() -> None:
    linear = torch.nn.Linear(2, 2)
    state = ReachedState(lambda x: linear(x), (), {})
    assert state.modules == [linear]
