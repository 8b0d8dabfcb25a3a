"""SAM against the paper's algorithm written out in plain torch."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from numdrift.reproducers.sam import SAM

LR, MOMENTUM, RHO = 0.1, 0.9, 0.05


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def loss_of(model: nn.Module) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(16, 1, generator=generator, dtype=torch.float64)

    def loss() -> Tensor:
        error: Tensor = model(x) - y
        return error.square().mean()

    return loss


def two_passes(optimizer: SAM, loss: Callable[[], Tensor], steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        first = loss()
        first.backward()
        optimizer.first_step(zero_grad=True)
        loss().backward()
        optimizer.second_step(zero_grad=True)
        losses.append(first.item())
    return losses


def one_closure(optimizer: SAM, loss: Callable[[], Tensor], steps: int) -> list[float]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return [optimizer.step(closure).item() for _ in range(steps)]


def algorithm_1(model: nn.Module, loss: Callable[[], Tensor], steps: int) -> list[float]:
    """Take the paper's steps with momentum on one flat vector, by autograd.grad alone."""
    parameters = list(model.parameters())
    w = nn.utils.parameters_to_vector(parameters).detach()
    velocity = torch.zeros_like(w)
    losses = []
    for _ in range(steps):
        nn.utils.vector_to_parameters(w, parameters)
        value = loss()
        losses.append(value.item())
        g = torch.cat([part.flatten() for part in torch.autograd.grad(value, parameters)])
        nn.utils.vector_to_parameters(w + RHO * g / g.square().sum().sqrt(), parameters)
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss(), parameters)])
        velocity = MOMENTUM * velocity + g
        w = w - LR * velocity
    nn.utils.vector_to_parameters(w, parameters)
    return losses


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@pytest.mark.parametrize("train", [two_passes, one_closure])
def test_follows_algorithm_1(train: Callable[[SAM, Callable[[], Tensor], int], list[float]]) -> None:
    expected, model = mlp(), mlp()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=RHO, lr=LR, momentum=MOMENTUM)
    wanted = algorithm_1(expected, loss_of(expected), steps=5)

    losses = train(optimizer, loss_of(model), 5)

    assert losses == pytest.approx(wanted, rel=1e-13)
    torch.testing.assert_close(weights(model), weights(expected), rtol=1e-13, atol=1e-14)


def test_climbs_by_rho_and_returns_to_the_same_bits() -> None:
    model = mlp()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=RHO, lr=0.0)
    before = weights(model)

    loss_of(model)().backward()
    optimizer.first_step()
    climbed = weights(model)
    optimizer.second_step()

    assert (climbed - before).norm().item() == pytest.approx(RHO, rel=1e-12)
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.AdamW])
def test_without_radius_is_the_base_optimizer_bit_for_bit(base: type[torch.optim.Optimizer]) -> None:
    model, expected = mlp().float(), mlp().float()
    plain = base(expected.parameters(), lr=LR)  # type: ignore[call-arg]
    x = torch.linspace(-1, 1, 16).view(4, 4)

    two_passes(SAM(model.parameters(), base, rho=0.0, lr=LR), lambda: model(x).square().mean(), 5)
    for _ in range(5):
        plain.zero_grad()
        expected(x).square().mean().backward()
        plain.step()

    assert torch.equal(weights(model), weights(expected))


@pytest.mark.parametrize("of_base", [False, True])
def test_scheduler_of_either_optimizer_sets_the_rate(of_base: bool) -> None:
    model = mlp()
    optimizer = SAM(model.parameters(), lr=LR)
    scheduler = StepLR(optimizer.base_optimizer if of_base else optimizer, step_size=1, gamma=0.5)

    one_closure(optimizer, loss_of(model), 1)
    scheduler.step()

    assert optimizer.param_groups[0]["lr"] == optimizer.base_optimizer.param_groups[0]["lr"] == LR / 2


def test_state_dict_carries_momentum_rate_and_radius() -> None:
    model = mlp()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=RHO, lr=LR, momentum=MOMENTUM)
    two_passes(optimizer, loss_of(model), 3)
    resumed = copy.deepcopy(model)
    other = SAM(resumed.parameters(), torch.optim.SGD, rho=1.0, lr=1.0, momentum=MOMENTUM)

    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    assert other.param_groups is other.base_optimizer.param_groups
    assert two_passes(other, loss_of(resumed), 3) == two_passes(optimizer, loss_of(model), 3)
    assert torch.equal(weights(resumed), weights(model))


def test_added_group_reaches_the_base() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    optimizer = SAM([first], lr=LR)

    optimizer.add_param_group({"params": [second], "lr": 0.5})

    assert [(group["lr"], group["rho"]) for group in optimizer.base_optimizer.param_groups] == [
        (LR, 0.05),
        (0.5, 0.05),
    ]


def test_zero_gradient_leaves_the_weights() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = SAM([parameter], lr=LR)
    one_closure(optimizer, lambda: (parameter * 0.0).sum(), 1)
    assert parameter.tolist() == [1.0, 1.0]


def test_refuses_what_it_cannot_do() -> None:
    parameter = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="rho must be at least 0, got -1"):
        SAM([parameter], rho=-1, lr=LR)
    optimizer = SAM([parameter], lr=LR)
    with pytest.raises(RuntimeError, match="call backward before first_step"):
        optimizer.first_step()
    with pytest.raises(RuntimeError, match="without first_step"):
        optimizer.second_step()
    parameter.sum().backward()
    optimizer.first_step()
    with pytest.raises(RuntimeError, match="called twice"):
        optimizer.first_step()
