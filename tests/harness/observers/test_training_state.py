"""A state that is put in place makes two trainings one, whatever they did before."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from numdrift.harness.observers.state.optimizer_state import bindings
from numdrift.harness.observers.state.training_state import TrainingState, load_generators, load_state, training_state
from numdrift.harness.script.named_tensors import TrainingTensors
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.reproducers.sam import SAM

INPUTS = torch.linspace(-1, 1, 24).reshape(8, 3)


class Net(nn.Module):
    """Tied weights, running statistics, dropout, and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.first.weight
        self.last = nn.Linear(4, 1)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(torch.tanh(self.norm(self.first(x) + self.tied(x))), 0.3)
        result: torch.Tensor = self.last(hidden)
        return result


class Training:
    """A model and its optimizers, known to `tensors` as the recorder would know them."""

    def __init__(self, seed: int, make: Callable[[nn.Module], list[torch.optim.Optimizer]]) -> None:
        torch.manual_seed(seed)
        self.model: nn.Module = Net()
        self.optimizers = make(self.model)
        self.tensors = TrainingTensors()
        self.tensors.add_root(self.model)
        for optimizer in self.optimizers:
            self.tensors.add_optimizer(optimizer)

    def step(self) -> float:
        losses: list[float] = []

        def closure() -> float:
            for one in self.optimizers:
                one.zero_grad()
            x = INPUTS * random.random() + np.random.rand() + torch.rand(8, 1)
            loss = self.model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
            return losses[-1]

        for optimizer in self.optimizers:
            optimizer.step(closure)
        return losses[-1]

    def state(self) -> TrainingState:
        return training_state(self.tensors, "cpu", 0)

    def load(self, state: TrainingState) -> list[str]:
        missing = load_state(state, self.tensors, "cpu")
        return missing + load_generators(state, "cpu")

    def everything(self) -> dict[str, Any]:
        state = self.state()
        return {"tensors": {name: one.tolist() for name, one in state.tensors.items()}, **state.facts}


def through_a_file(state: TrainingState, folder: Path) -> TrainingState:
    write_tensors(folder / "state", state.tensors, state.facts)
    return TrainingState(*read_tensors(folder / "state"))


OPTIMIZERS: dict[str, Callable[[nn.Module], list[torch.optim.Optimizer]]] = {
    "sgd": lambda net: [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)],
    "adamw": lambda net: [torch.optim.AdamW(net.parameters(), lr=0.01)],
    "nadam": lambda net: [torch.optim.NAdam(net.parameters(), lr=0.01)],
    "adam with a tensor": lambda net: [torch.optim.Adam(net.parameters(), lr=torch.tensor(0.01), foreach=False)],
    "lbfgs": lambda net: [torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)],
    "sam": lambda net: [SAM(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)],
    "two of the same": lambda net: [
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        torch.optim.RMSprop(net.parameters(), lr=0.01, momentum=0.5),
    ],
}


@pytest.mark.parametrize("steps", [(0, 2), (2, 0), (2, 3), (3, 0)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_loaded_state_continues_bit_for_bit(name: str, steps: tuple[int, int], tmp_path: Path) -> None:
    # given two trainings from other seeds, each some steps on its way
    one, other = Training(1, OPTIMIZERS[name]), Training(2, OPTIMIZERS[name])
    for training, count in zip((one, other), steps, strict=True):
        for _ in range(count):
            training.step()
    other.optimizers[0].param_groups[0]["lr"] = torch.tensor(0.5) if name == "adam with a tensor" else 0.5
    state = through_a_file(one.state(), tmp_path)
    expected = [one.step() for _ in range(3)]
    ended = one.everything()
    # when
    missing = other.load(state)
    # then
    assert missing == []
    assert [other.step() for _ in range(3)] == expected
    assert other.everything() == ended


def test_tensors_stay_the_scripts_own(tmp_path: Path) -> None:
    # given
    training = Training(1, OPTIMIZERS["adamw"])
    training.step()
    state = through_a_file(training.state(), tmp_path)
    training.step()
    before = {name: one.data_ptr() for name, one in bindings(training.tensors).items()}
    view = training.model.get_parameter("first.weight").data.view(-1)
    # when
    training.load(state)
    # then
    assert {name: one.data_ptr() for name, one in bindings(training.tensors).items()} == before
    assert view.tolist() == state.tensors["parameter first.weight"].flatten().tolist()


def test_a_value_computed_before_can_still_be_differentiated(tmp_path: Path) -> None:
    training = Training(1, OPTIMIZERS["sgd"])
    penalty = training.model.get_parameter("last.weight").square().sum()
    training.load(through_a_file(training.state(), tmp_path))
    penalty.backward()


def test_sam_is_stored_once() -> None:
    training = Training(1, OPTIMIZERS["sam"])
    sam = training.optimizers[0]
    assert isinstance(sam, SAM)
    training.tensors.add_optimizer(sam.base_optimizer)
    training.step()
    state = training.state()
    assert [one["class"] for one in state.facts["hyper"]] == ["SAM"]
    assert sum(name.startswith("state ") for name in state.tensors) == len(sam.base_optimizer.state)
    assert not any("@" in name for name in state.tensors)


def test_two_optimizers_of_one_parameter_keep_their_own() -> None:
    training = Training(1, OPTIMIZERS["two of the same"])
    training.step()
    state = training.state()
    first, second = (one.state[training.model.get_parameter("first.bias")] for one in training.optimizers)
    assert state.tensors["state first.bias.momentum_buffer"] is first["momentum_buffer"]
    assert state.tensors["state first.bias.momentum_buffer@1"] is second["momentum_buffer"]
    assert state.tensors["state first.bias.square_avg"] is second["square_avg"]


def test_names_are_those_of_the_graphs() -> None:
    training = Training(1, OPTIMIZERS["sgd"])
    training.step()
    named = bindings(training.tensors)
    kept = {name for name in training.state().tensors if not name.startswith("generator ")}
    assert set(named) == kept
    assert "parameter tied.weight" not in named and "gradient unused" not in named
    assert "state first.weight.momentum_buffer" in named and "buffer norm.running_mean" in named


def test_gradients_are_left_as_recorded(tmp_path: Path) -> None:
    # given a state with gradients but for one parameter, and one without any
    training = Training(1, OPTIMIZERS["sgd"])
    bare = through_a_file(training.state(), tmp_path)
    training.step()
    state = through_a_file(training.state(), tmp_path)
    recorded = {name: one.grad for name, one in training.model.named_parameters()}
    values = {name: None if one is None else one.tolist() for name, one in recorded.items()}
    unused = training.model.get_parameter("unused")
    # when, then
    training.load(bare)
    assert all(one.grad is None for one in training.model.parameters())
    unused.grad = torch.ones(2)
    training.load(state)
    found = {name: one.grad for name, one in training.model.named_parameters()}
    assert {name: None if one is None else one.tolist() for name, one in found.items()} == values
    assert values["unused"] is None and values["last.weight"] is not None


def test_a_sparse_gradient_stays_sparse(tmp_path: Path) -> None:
    # given
    table = nn.Embedding(6, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
    tensors = TrainingTensors()
    tensors.add_root(table)
    tensors.add_optimizer(optimizer)
    table(torch.tensor([1, 4, 1])).square().sum().backward()
    optimizer.step()
    assert table.weight.grad is not None
    dense = table.weight.grad.to_dense()
    state = through_a_file(training_state(tensors, "cpu", 1), tmp_path)
    optimizer.zero_grad()
    # when
    missing = load_state(state, tensors, "cpu")
    # then
    loaded = next(table.parameters()).grad
    assert missing == [] and loaded is not None and loaded.is_sparse
    assert torch.equal(loaded.to_dense(), dense)
    optimizer.step()


def test_what_has_no_counterpart_is_named(tmp_path: Path) -> None:
    # given a state of another model, with more optimizers and another group
    one = Training(1, OPTIMIZERS["two of the same"])
    one.step()
    state = through_a_file(one.state(), tmp_path)
    other = Training(2, OPTIMIZERS["sgd"])
    other.model.last = nn.Linear(5, 1)
    other.model.register_buffer("more", torch.zeros(1))
    other.model.register_buffer("wide", torch.zeros(1).expand(3))
    del other.model.unused
    before = other.model.get_parameter("last.weight").tolist()
    # when
    missing = other.load(state)
    # then the rest is in place
    assert {
        "parameter last.weight",
        "buffer more",
        "buffer wide",
        "parameter unused",
        "state first.bias.square_avg",
        "optimizer 1",
    } <= set(missing)
    assert "parameter last.bias" not in missing
    assert other.model.get_parameter("last.weight").tolist() == before
    assert torch.equal(other.model.get_parameter("first.weight"), one.model.get_parameter("first.weight"))


def test_a_parameter_that_only_an_optimizer_holds_is_loaded(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    tensors = TrainingTensors()
    tensors.add_optimizer(optimizer)
    state = through_a_file(training_state(tensors, "cpu", 0), tmp_path)
    weight.data.zero_()
    assert load_state(state, tensors, "cpu") == [] and weight.tolist() == [1, 2]


def test_parameters_without_a_shape_are_left_out() -> None:
    model = nn.LazyLinear(2)
    tensors = TrainingTensors()
    tensors.add_root(model)
    assert list(training_state(tensors, "cpu", 0).tensors) == ["generator torch"]


def test_optimizers_are_not_kept_alive() -> None:
    tensors = TrainingTensors()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    assert tensors.add_optimizer(optimizer) and not tensors.add_optimizer(optimizer)
    del optimizer
    assert tensors.optimizers() == []
