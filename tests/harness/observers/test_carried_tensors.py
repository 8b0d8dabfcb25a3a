"""The tensors that a script carries over, wherever it keeps them."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from numdrift.harness.observers.state import carried_tensors
from numdrift.harness.observers.state.carried_tensors import LARGEST, CarriedTensors
from numdrift.harness.observers.state.training_state import load_state, training_state
from numdrift.harness.script.named_tensors import TrainingTensors


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(2))
        self.inner = nn.Module()
        self.inner.memory = torch.zeros(2)


@dataclass
class Store:
    """A class of the script."""

    rows: torch.Tensor = field(default_factory=lambda: torch.zeros(4, 2))


def training_of(model: nn.Module) -> TrainingTensors:
    training = TrainingTensors()
    training.add_root(model)
    return training


def stepped(carried: CarriedTensors) -> dict[str, list[float]]:
    """What is found of a step that changes everything but the data, by the names of this function's variables."""
    model, store, data, hidden = Model(), Store(), torch.ones(3), torch.zeros(2)  # noqa: F841
    queue, recent, table = [torch.zeros(2), torch.zeros(2)], deque([torch.zeros(1)], maxlen=2), {"mean": torch.zeros(1)}
    carried.begins()
    hidden = hidden + 1
    model.inner.memory = torch.full((2,), 2.0)
    model.count.add_(1)  # type: ignore[operator]
    queue[1].add_(3)
    recent.append(torch.full((1,), 4.0))
    table["mean"] = torch.full((1,), 5.0)
    store.rows[2] = 6
    carried.ended()
    return {name: tensor.flatten().unique().tolist() for name, tensor in carried.named().items()}


def test_what_a_step_changes_is_named_by_its_path() -> None:
    found = stepped(CarriedTensors(__file__, training_of(Model())))
    assert found == {
        "carried model.count": [1.0],  # the training has another model
        "carried hidden": [1.0],
        "carried model.inner.memory": [2.0],
        "carried queue.1": [3.0],
        "carried recent.1": [4.0],
        "carried table.mean": [5.0],
        "carried store.rows": [0.0, 6.0],
    }


def averaged(training: TrainingTensors, model: Model, models: dict[str, AveragedModel]) -> dict[str, torch.Tensor]:
    """What is found of a step that updates the average of a model."""
    carried = CarriedTensors(__file__, training)
    carried.begins()
    with torch.no_grad():
        model.linear.weight.add_(1)
    models["ema"].update_parameters(model)
    carried.ended()
    return carried.named()


def test_the_tensors_of_a_module_that_is_not_trained_are_carried() -> None:
    model = Model()
    models = {"ema": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))}

    found = averaged(training_of(model), model, models)

    names = ("linear.weight", "linear.bias", "count")
    assert found.keys() == {f"carried models.ema.module.{name}" for name in names}
    assert found["carried models.ema.module.linear.weight"] is models["ema"].get_parameter("module.linear.weight")
    # and they are restored like those of the trained model
    before = {name: tensor.detach().clone() for name, tensor in found.items()}
    training = training_of(model)
    state = training_state(training, "cpu", 1, before)
    models["ema"].update_parameters(Model())
    load_state(state, training, "cpu", found)
    assert all(torch.equal(found[name], value) for name, value in before.items())


def test_what_has_a_name_in_the_training_is_not_carried() -> None:
    model = Model()
    carried, alias = CarriedTensors(__file__, training_of(model)), model.linear.weight.detach()
    carried.begins()
    with torch.no_grad():
        alias += 1
    model.count.add_(1)  # type: ignore[operator]
    carried.ended()
    assert carried.named() == {}


def test_what_is_too_large_is_left_out() -> None:
    carried = CarriedTensors(__file__, training_of(Model()))
    carried.begins()
    small, large = torch.ones(2), torch.empty(LARGEST + 1, dtype=torch.uint8)  # noqa: F841
    carried.ended()
    assert list(carried.named()) == ["carried small"]


def test_all_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_tensors, "TOTAL", 40)
    carried = CarriedTensors(__file__, training_of(Model()))
    carried.begins()
    first, second, third = torch.ones(4), torch.ones(8), torch.ones(6)  # noqa: F841
    carried.ended()
    assert list(carried.named()) == ["carried first", "carried third"]


def test_no_tensor_lives_longer_and_no_variable_is_lost() -> None:
    carried = CarriedTensors(__file__, training_of(Model()))
    hidden: torch.Tensor | None = torch.ones(2)
    assert hidden is not None
    gone = weakref.ref(hidden)
    carried.begins()
    hidden = None
    assert gone() is None
    hidden, other = torch.ones(1), "other"
    carried.ended()
    assert list(carried.named()) == ["carried hidden"] and hidden.tolist() == [1] and other == "other"


def test_a_dictionary_of_variables_that_the_script_has_is_left_alone() -> None:
    def scripts(size: int, name: str) -> dict[str, Any]:
        settings = locals()
        carried = CarriedTensors(__file__, training_of(Model()))
        carried.begins()
        hidden = torch.ones(size)
        carried.ended()
        assert list(carried.named()) == ["carried hidden"]
        return settings

    settings = scripts(2, "run")
    assert (settings["size"], settings["name"]) == (2, "run")


def test_objects_that_raise_are_no_matter() -> None:
    class Strange:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    carried = CarriedTensors(__file__, training_of(Model()))
    strange = Strange()  # noqa: F841
    carried.begins()
    carried.ended()
    assert carried.named() == {}


def test_a_state_brings_what_is_carried_into_the_scripts_own_tensors() -> None:
    # given a state in which a queue differs from the script's, and data that do not
    training = training_of(Model())
    carried = CarriedTensors(__file__, training)
    queue, data = torch.zeros(4), torch.ones(2)
    row, version = queue[:2], data._version
    carried.begins()
    queue += 1
    data += 1
    carried.ended()
    state = training_state(training, "cpu", 1, {key: value.clone() for key, value in carried.named().items()})
    assert {"carried queue", "carried data"} <= state.tensors.keys()
    queue += 1
    # when
    missing = load_state(state, training, "cpu", carried.all_named())
    # then the views of the queue show it, and nothing was written to the data
    assert missing == [] and queue.tolist() == [1] * 4 and row.tolist() == [1, 1]
    assert data.tolist() == [2, 2] and data._version == version + 1
