"""The results that ops leave to the script, and how noisy they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from numdrift.harness.drift.step_score import UNIT_ROUNDOFF
from numdrift.harness.tape.replaying.ensemble import measure_noise
from numdrift.harness.tape.replaying.left_to_script import LEFT, with_results_left
from numdrift.harness.tape.tape import Tape

from .trainings import Training

UNIT = UNIT_ROUNDOFF["float32"]


def nothing(actor: nn.Module, x: Tensor, critic: nn.Module) -> None:
    """Does nothing besides the step."""


def into_numpy(actor: nn.Module, x: Tensor, critic: nn.Module) -> object:
    return np.sin(actor(x).detach().numpy())


def without_grad(actor: nn.Module, x: Tensor, critic: nn.Module) -> object:
    with torch.no_grad():
        return actor(x).tolist()


def in_place(actor: nn.Module, x: Tensor, critic: nn.Module) -> object:
    return actor(x).detach().clamp_(-2, 2).numpy()


def one_number(actor: nn.Module, x: Tensor, critic: nn.Module) -> float:
    return float(actor(x).detach()[0, 0])


def number_of_a_read_value(actor: nn.Module, x: Tensor, critic: nn.Module) -> object:
    out = actor(x).mean()
    return out.item(), critic(out.reshape(1, 1).expand(1, 4))


def whole_number(actor: nn.Module, x: Tensor, critic: nn.Module) -> int:
    return int(actor(x).argmax())


class Loop(Training):
    """A critic that trains while the script takes something from an actor."""

    takes: Callable[[nn.Module, Tensor, nn.Module], object] = staticmethod(nothing)

    def __init__(self) -> None:
        self.actor = nn.Sequential(nn.Linear(4, 2), nn.Tanh())
        self.critic = nn.Linear(4, 1)
        super().__init__(self.critic, torch.optim.Adam(self.critic.parameters(), foreach=False))
        self.x = torch.randn(3, 4)

    def work(self) -> None:
        self.takes(self.actor, self.x, self.critic)
        self.optimizer.zero_grad()
        self.backward(self.critic(self.x).square().mean())
        self.optimizer.step()


def taped(takes: Callable[[nn.Module, Tensor, nn.Module], object]) -> Tape:
    torch.manual_seed(0)
    loop = Loop()
    loop.takes = takes
    loop.step()
    return loop.taped(1)


def left_of(tape: Tape) -> list[tuple[int, ...]]:
    return [watched.view.size for watched in with_results_left(tape).watched if watched.name.startswith(LEFT)]


@pytest.mark.parametrize(
    ("takes", "sizes"),
    [
        (nothing, []),  # the loss is watched, and the optimizer reads its own step
        (into_numpy, [(3, 2)]),
        (without_grad, [(3, 2)]),
        (in_place, [(3, 2)]),
        (one_number, [(3, 2)]),
        (number_of_a_read_value, [(), (1, 1)]),
    ],
)
def test_what_ops_leave_to_the_script(
    takes: Callable[[nn.Module, Tensor, nn.Module], object], sizes: list[tuple[int, ...]]
) -> None:
    tape = taped(takes)

    assert left_of(tape) == sizes
    noise = measure_noise(tape, 8, 2)
    assert noise.equal and noise.edge_replays == 2 and not any(name.startswith(LEFT) for name in noise.tensors)
    assert noise.tensors.keys() == tape.expected().keys()
    # a tanh of values around 1 rounds by about half a unit
    assert (0.1 * UNIT < noise.left < 20 * UNIT) if sizes else noise.left == 0.0
    assert noise.to_json()["left"] == noise.left


def test_integers_have_no_digits_to_round() -> None:
    assert all(size != () for size in left_of(taped(whole_number)))
