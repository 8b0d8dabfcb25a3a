from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from numdrift.harness.script.named_tensors import NamedTensor, RootModules


def names(roots: RootModules, optimized: list[torch.Tensor] | None = None) -> list[str]:
    return [named.name for named in roots.named_tensors(optimized or [])]


class Critic(nn.Linear):
    """A second model whose class gives the prefix."""


@pytest.fixture
def script_globals(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Stands for the script: its `__main__` has no variables but those set here."""
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    return monkeypatch


def test_the_first_roots_tensors_keep_their_plain_names() -> None:
    roots = RootModules()
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert roots.add(model)
    assert [(named.name, named.kind) for named in roots.named_tensors([])] == [
        ("0.weight", "parameter"),
        ("0.bias", "parameter"),
        ("1.weight", "parameter"),
        ("1.bias", "parameter"),
        ("1.running_mean", "buffer"),
        ("1.running_var", "buffer"),
        ("1.num_batches_tracked", "buffer"),
    ]


def test_a_later_root_is_prefixed_by_its_variable(script_globals: pytest.MonkeyPatch) -> None:
    roots, model, critic = RootModules(), nn.Linear(1, 1), Critic(1, 1)
    script_globals.setattr(sys.modules["__main__"], "judge", critic, raising=False)
    assert roots.add(model) and roots.add(critic)
    assert names(roots) == ["weight", "bias", "judge.weight", "judge.bias"]


def test_a_later_root_without_a_variable_is_prefixed_by_its_class(script_globals: pytest.MonkeyPatch) -> None:
    roots, models = (
        RootModules(),
        [nn.Linear(1, 1, bias=False), *(Critic(1, 1, bias=False) for _ in range(3))],
    )
    assert all(roots.add(model) for model in models)
    assert names(roots) == ["weight", "critic.weight", "critic2.weight", "critic3.weight"]


def test_a_module_is_added_once_and_its_parts_never() -> None:
    roots = RootModules()
    model = nn.Sequential(nn.Linear(1, 1))
    assert roots.add(model)
    assert not roots.add(model)
    assert not roots.add(model[0])


def test_a_module_without_parameters_is_no_root() -> None:
    roots = RootModules()
    model = nn.Linear(1, 1)
    assert not roots.add(nn.MSELoss())
    assert roots.add(model)
    assert names(roots) == ["weight", "bias"]


def test_tied_weights_come_once() -> None:
    roots = RootModules()
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    roots.add(model)
    assert names(roots, list(model.parameters())) == ["0.weight"]


def test_a_weight_shared_by_two_roots_comes_once(script_globals: pytest.MonkeyPatch) -> None:
    roots, one, other = RootModules(), nn.Linear(2, 2), Critic(2, 2)
    other.weight = one.weight
    roots.add(one)
    roots.add(other)
    assert names(roots) == ["weight", "bias", "critic.bias"]


def test_what_an_optimizer_alone_holds_comes_last() -> None:
    roots = RootModules()
    model = nn.Linear(1, 1)
    roots.add(model)
    scale, shift = torch.ones(1), torch.zeros(1)
    found = list(roots.named_tensors([scale, *model.parameters(), shift, scale]))
    assert [named.name for named in found] == ["weight", "bias", "optimized.0", "optimized.3"]
    assert found[2].tensor is scale and found[3].kind == "parameter"


def test_dead_modules_are_forgotten() -> None:
    # given a root that the script drops
    roots = RootModules()
    model, kept = nn.Linear(1, 1), Critic(1, 1)
    roots.add(model)
    roots.add(kept)
    # when
    del model
    gc.collect()
    # then its names are gone, and those of the other one stay what they were
    assert [name.rpartition(".")[2] for name in names(roots)] == ["weight", "bias"]
    assert all(name.startswith("critic.") for name in names(roots))


class Perturbed(nn.Module):
    """A library's wrapper around the script's model, made anew for each call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base = model


def test_a_model_that_is_built_anew_takes_the_names_of_the_one_that_is_gone() -> None:
    # given a model that its script drops, and builds anew
    roots, model = RootModules(), nn.Sequential(nn.Linear(2, 3))
    assert roots.add(model)
    model = nn.Sequential(nn.Linear(2, 3))
    assert roots.add(model)
    assert names(roots) == ["0.weight", "0.bias"]
    # one with other tensors, or beside the one that is still there, has names of its own
    wider = nn.Sequential(nn.Linear(2, 4))
    other = nn.Sequential(nn.Linear(2, 3))
    assert roots.add(wider) and roots.add(other)
    assert names(roots)[:2] == ["0.weight", "0.bias"]
    assert names(roots)[2:] == [
        f"{prefix}0.{of}" for prefix in ("sequential.", "sequential2.") for of in ("weight", "bias")
    ]


def test_tensors_keep_the_names_that_a_dead_wrapper_gave_them() -> None:
    # given
    roots, model = RootModules(), nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    wrapper = Perturbed(model)
    roots.add(wrapper)
    before = names(roots, list(model.parameters()))
    # when
    reference = weakref.ref(wrapper)
    del wrapper
    gc.collect()
    # then: of the optimizer's parameters none lost its name, and the wrapper is not held
    assert reference() is None
    assert names(roots, list(model.parameters())) == before
    assert before[0] == "base.0.weight" and before[-1] == "base.1.num_batches_tracked"
    assert roots.classes() == ["Perturbed"]


def test_parameters_of_a_named_model_can_be_swapped() -> None:
    # given: torch refuses to swap a tensor that somebody holds weakly
    roots, model = RootModules(), nn.Linear(2, 2)
    roots.add(Perturbed(model))
    # when
    torch.utils.swap_tensors(model.weight, nn.Parameter(torch.ones(2, 2)))
    # then
    assert [one.tensor.sum().item() for one in roots.named_tensors([]) if one.name == "base.weight"] == [4.0]


def test_a_wrapper_that_is_made_anew_stands_for_the_root() -> None:
    # given
    roots, model = RootModules(), nn.Linear(2, 2)
    first = Perturbed(model)
    roots.add(first)
    before = names(roots)
    # when: both while the first is there and when it is gone
    again = [roots.made_anew(Perturbed(model))]
    del first
    gc.collect()
    last = Perturbed(model)
    again += [roots.made_anew(last), roots.made_anew(last), roots.add(last)]
    # then
    assert again == [True, True, False, False]
    assert names(roots) == before == ["base.weight", "base.bias"]


def test_a_model_of_the_same_class_with_tensors_of_its_own_stands_for_no_other() -> None:
    roots, first = RootModules(), nn.Linear(2, 2)
    roots.add(first)
    assert not roots.made_anew(nn.Linear(2, 2))


def test_a_model_that_was_expected_is_new_when_it_is_called() -> None:
    # as where an optimizer's step is given a closure that calls the model for the first time
    roots, model = RootModules(), nn.Linear(2, 2)
    assert roots.expect(model)
    assert not roots.made_anew(model)
    assert roots.add(model) and not roots.add(model)
    assert names(roots) == ["weight", "bias"]


def test_a_tensor_describes_itself() -> None:
    tensor = torch.zeros(2, 3, dtype=torch.bfloat16)
    described = NamedTensor("w", "buffer", tensor).describe()
    assert described == {"name": "w", "kind": "buffer", "shape": [2, 3], "dtype": "bfloat16"}
    assert NamedTensor("w", "buffer", torch.tensor(1)).describe()["shape"] == []


def test_a_module_whose_names_were_looked_up_is_new_when_it_is_called() -> None:
    # given: LBFGS, whose step begins before anything was called
    roots, model = RootModules(), nn.Linear(2, 2)
    # when
    expected = [roots.expect(model), roots.expect(model)]
    before = names(roots)
    called = [roots.add(model), roots.add(model)]
    # then
    assert expected == [True, False]
    assert called == [True, False]
    assert before == names(roots) == ["weight", "bias"]


class Measured(nn.Module):
    """Calls a part of itself while it is built, to see the shape of what it gives."""

    def __init__(self, called: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.was_new = called(self.first)
        self.second = nn.Linear(3, 1)


def test_a_part_that_is_called_while_its_model_is_built_is_no_model() -> None:
    # given
    roots = RootModules()
    # when
    model = Measured(roots.add)
    # then
    assert not model.was_new
    assert roots.add(model)
    assert names(roots) == ["first.weight", "first.bias", "second.weight", "second.bias"]


def test_a_parametrization_that_is_computed_is_no_model() -> None:
    # given
    roots, called = RootModules(), list[bool]()
    layer = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", Doubled(lambda one: called.append(roots.add(one))))
    # when
    called.clear()
    assert layer.weight.shape == (2, 2)
    # then
    assert called == [False]


class Doubled(nn.Module):
    def __init__(self, called: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.called = called

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.called(self)
        return weight * self.factor
