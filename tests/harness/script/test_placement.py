from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from numdrift.harness.backends.lazy.tensor_lists import give_lists_of_lazy_tensors
from numdrift.harness.errors import AdoptionError
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.adopted.devices import DeviceRedirection
from numdrift.harness.script.adopted.placement import Placement
from numdrift.harness.script.understood import ScriptNotes
from numdrift.harness.torch_private.deferred.lazy import replace_lazy_unscaling, start_lazy_backend


@pytest.fixture
def facts() -> list[str]:
    return []


@pytest.fixture
def placement(facts: list[str]) -> Iterator[Placement]:
    start_lazy_backend()
    notes = ScriptNotes(AdoptionFacts(lambda event, **fields: facts.append(fields["text"])), __file__)
    devices = DeviceRedirection("lazy", notes)
    devices.install()
    placement = Placement("lazy", notes)
    yield placement
    placement.close()
    devices.close()


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.outer = torch.nn.Linear(3, 3)
        self.outer.weight = self.inner.weight
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.outer(self.norm(torch.tanh(self.inner(x / 2))))
        return out


def trained(device: str, place: Callable[[torch.nn.Module, Any], None]) -> dict[str, Any]:
    """Three steps with momentum: one on the CPU, then two after `place`, with the data on `device`."""
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = torch.randn(4, 3), torch.randint(0, 3, (4,))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    place(model, optimizer)
    x, y = x.to(device), y.to(device)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, **{name: value.cpu() for name, value in model.state_dict().items()}}


def test_a_placed_training_is_that_of_a_script_that_moves_everything(placement: Placement) -> None:
    # given
    def by_hand(model: torch.nn.Module, optimizer: Any) -> None:
        model.to("lazy")
        for state in optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].to("lazy")

    expected = trained("lazy", by_hand)
    # when
    found = trained("cpu", lambda model, optimizer: placement.place(model, [optimizer]))
    # then
    assert found["losses"] == expected["losses"]
    for name in expected:
        if name != "losses":
            assert torch.equal(found[name], expected[name]), name


def test_a_placed_model_keeps_its_parameters_ties_hooks_and_gradients(placement: Placement, facts: list[str]) -> None:
    # given
    model = Tied()
    before = list(model.parameters())
    seen: list[str] = []
    handle = model.inner.weight.register_hook(lambda gradient: gradient * 2)
    model.inner.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(str(parameter.device)))
    model(torch.randn(2, 3)).sum().backward()
    assert model.inner.weight.grad is not None
    gradient = model.inner.weight.grad.clone()
    seen.clear()
    # when
    placement.place(model, [])
    # then
    assert all(one is other for one, other in zip(model.parameters(), before, strict=True))
    assert model.outer.weight is model.inner.weight
    assert {one.device.type for one in [*model.parameters(), *model.buffers()]} == {"lazy"}
    assert torch.equal(model.inner.weight.grad.cpu(), gradient)
    assert facts == ["Tied was on cpu and has been moved to lazy"]

    model.inner.weight.grad = None
    (model.inner.weight * 1).sum().backward()
    assert seen == ["lazy:0"]
    assert torch.equal(_gradient(model.inner.weight), torch.full((3, 3), 2.0))
    handle.remove()
    model.inner.weight.grad = None
    (model.inner.weight * 1).sum().backward()
    assert torch.equal(_gradient(model.inner.weight), torch.ones(3, 3))


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad.cpu()


def test_a_parametrized_model_is_placed(placement: Placement) -> None:
    torch.manual_seed(1)
    model = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    expected = model(torch.ones(1, 3)).detach()
    placement.place(model, [])
    assert model.weight.device.type == "lazy"
    assert torch.allclose(model(torch.ones(1, 3)).cpu(), expected)


def test_a_model_that_is_on_the_device_costs_nothing(placement: Placement, facts: list[str]) -> None:
    placement.place(torch.nn.Linear(2, 2).to("lazy"), [])
    assert not facts
    with pytest.raises((RuntimeError, AdoptionError)):
        torch.ones(2, device="lazy") + torch.ones(2)


def test_a_model_that_cannot_be_moved_is_refused(placement: Placement) -> None:
    with pytest.raises(AdoptionError, match=r'Linear is on meta, but this mode runs on lazy: .*environ\["DEVICE"\]'):
        placement.place(torch.nn.Linear(2, 2, device="meta"), [])


def test_a_mode_on_the_cpu_refuses_what_the_script_put_elsewhere(facts: list[str]) -> None:
    start_lazy_backend()
    notes = ScriptNotes(AdoptionFacts(lambda *_, **__: None), __file__)
    with pytest.raises(AdoptionError, match="is on lazy, but this mode runs on cpu"):
        Placement("cpu", notes).place(torch.nn.Linear(2, 2).to("lazy"), [])


X = torch.arange(6.0).reshape(2, 3)

MEETINGS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x + X,
    "sum-of-cpu-first": lambda x: X + x,
    "mse": lambda x: torch.nn.functional.mse_loss(x, X),
    "stack": lambda x: torch.stack([x, X]),
    "where": lambda x: torch.where(X > 2, x, X),
    "index-by-cpu": lambda x: x[torch.tensor([1, 0])],
    "read": lambda x: torch.from_numpy(np.asarray(x) + x.numpy()),
    "mean-of-hits": lambda x: (x.argmax(1) == torch.tensor([2, 0])).float().mean(),
    "nested": lambda x: torch.cat([*torch.broadcast_tensors(x, X)]),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_tensors_that_meet_come_together(name: str, placement: Placement) -> None:
    expected = MEETINGS[name](X.clone())
    placement.meet()
    assert torch.equal(MEETINGS[name](X.to("lazy")).cpu(), expected)


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add_": lambda mine, x: mine.add_(x),
    "augmented": lambda mine, x: mine.__iadd__(x),
    "copy_": lambda mine, x: mine.copy_(x),
    "an-item": lambda mine, x: mine.__setitem__(0, x[0]),
    "data": lambda mine, x: mine.data.mul_(0.5).add_(x, alpha=0.5),
    "a-view": lambda mine, x: mine.view(-1).add_(x.reshape(-1)),
    "lerp_": lambda mine, x: mine.lerp_(x, 0.25),
    "foreach": lambda mine, x: torch._foreach_add_([mine], [x]),
    "out": lambda mine, x: torch.add(mine, x, out=mine),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_the_script_holds_on_the_cpu_is_written_there(name: str, placement: Placement) -> None:
    # given
    expected = torch.ones(2, 3)
    WRITES[name](expected, X.clone())
    placement.meet()
    # when
    mine = torch.ones(2, 3)
    alias = mine.view(-1)
    WRITES[name](mine, X.to("lazy"))
    # then
    assert mine.is_cpu
    assert torch.equal(mine, expected)
    assert torch.equal(alias, expected.reshape(-1))


def test_an_index_that_is_on_the_device_takes_from_a_data_set_on_the_cpu(placement: Placement) -> None:
    placement.meet()
    taken = X[torch.tensor([1]).to("lazy")]
    assert taken.is_cpu
    assert torch.equal(taken, X[1:])


def test_lengths_stay_on_the_cpu_where_torch_wants_them(placement: Placement) -> None:
    placement.meet()
    first, second = X.to("lazy").tensor_split(torch.tensor([1]))
    assert torch.equal(first.cpu(), X[:1])
    assert torch.equal(second.cpu(), X[1:])


def test_leaving_another_mode_leaves_the_meeting_on(placement: Placement) -> None:
    with torch.device("cpu"):
        placement.meet()
        assert (X.to("lazy") + X).device.type == "lazy"
    assert (X.to("lazy") + X).device.type == "lazy"
    torch.set_default_device("cpu")
    assert (X.to("lazy") + X).device.type == "lazy"
    torch.set_default_device(None)
    assert (X.to("lazy") + X).device.type == "lazy"
    placement.close()
    assert not torch.overrides._get_current_function_mode_stack()


def test_plain_tensors_of_an_optimizer_are_placed_when_it_is_made(placement: Placement, facts: list[str]) -> None:
    # given
    weight = torch.ones(3, requires_grad=True)
    # when
    optimizer = torch.optim.SGD([weight], 0.5)
    placement.optimizer_made(optimizer)
    (weight * torch.arange(3.0)).sum().backward()
    optimizer.step()
    # then
    assert facts == ["1 optimizer tensor was on cpu and has been moved to lazy"]
    assert torch.equal(weight.detach().cpu(), 1 - 0.5 * torch.arange(3.0))


def test_a_training_that_is_elsewhere_is_doubted(placement: Placement, facts: list[str]) -> None:
    placement.check([torch.ones(1).to("lazy"), torch.ones(1)])
    assert not facts
    placement.check([torch.ones(1)])
    assert len(facts) == 1
    assert facts[0].startswith("no parameter is on lazy (all are on cpu)")


def test_a_placed_model_is_saved_and_loaded(placement: Placement) -> None:
    # given
    model = Tied()
    placement.place(model, [])
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    # when
    loaded = torch.load(io.BytesIO(file.getvalue()))
    other = Tied()
    other.load_state_dict(loaded)
    # then
    assert torch.equal(other.inner.weight, model.inner.weight.cpu())
    # A file of the whole model names numdrift nowhere.
    assert b"numdrift" not in pickle.dumps(next(iter(model._forward_pre_hooks.values())))
    assert copy.deepcopy(model).inner.weight.device.type == "lazy"


def test_a_module_that_the_script_moves_keeps_its_ties(placement: Placement) -> None:
    model = Tied()
    weight = model.inner.weight
    model.cuda()
    assert weight.device.type == "lazy"
    assert model.inner.weight is weight
    assert model.outer.weight is weight


def test_a_scaler_unscales_on_the_device(placement: Placement, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(replace_lazy_unscaling())  # as the mode does
    weight = torch.nn.Parameter(torch.arange(3.0).to("lazy"))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("lazy", init_scale=8.0)
    scaler.scale((weight * torch.tensor([1.0, 2.0, 4.0]).to("lazy")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight.detach().cpu(), torch.arange(3.0) - 0.1 * torch.tensor([1.0, 2.0, 4.0]))
    scaler.scale((weight * torch.tensor([1.0, float("inf"), 4.0]).to("lazy")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_modules_are_moved(kind: Any, placement: Placement) -> None:
    """They hold weak references to their parameters, with which no tensor becomes another device's (issue 21)."""
    undo = give_lists_of_lazy_tensors()
    module = torch.nn.Sequential(kind(3, 4))
    expected, parameters = module(torch.ones(2, 5, 3))[0].detach(), dict(module.named_parameters())
    placement.place(module, [])
    assert {one.device.type for one in module.parameters()} == {"lazy"}
    assert all(parameters[name] is one for name, one in module.named_parameters())
    outputs = module(torch.ones(2, 5, 3))[0]
    outputs.sum().backward()
    assert torch.allclose(outputs.detach().cpu(), expected, atol=1e-6)
    assert all(one.grad is not None for one in module.parameters())
    undo()
