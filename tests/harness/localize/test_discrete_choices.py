"""A drift that is only a ReLU or a maximum on its edge is told from one that is not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from numdrift.harness.localize.causes.choices import ChosenDrift

from ..tape.trainings import Training
from .pairs import THRESHOLD, localized, nothing, sides

JUST = 2e-7
"""So far from zero is the input of one ReLU: farther than random rounding takes it, and within some units of it."""


class Kinked(Training):
    """A linear layer, and a ReLU of which one input is next to zero, on the side that `sign` says; `shift` moves all."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8))
        super().__init__(self.net, torch.optim.SGD(self.net.parameters(), lr=0.1))
        self.x = torch.randn(16, 6) / 4
        self.sign = 1.0
        self.shift = 0.0

    def work(self) -> None:
        self.optimizer.zero_grad()
        h = self.net[0](self.x)  # [16, 8]
        edge = h[:1, 4] - (h[:1, 4].detach() + self.sign * JUST)
        kept = F.relu(torch.cat([h[:, :4].flatten(), edge]) + self.shift)
        self.backward(kept.mean() + self.net[1](h).pow(2).mean())
        self.optimizer.step()


def chosen_with(plant: Any) -> tuple[float, ChosenDrift | None]:
    found = localized(sides(Kinked, plant))
    return found.proofs.whole.score, found.chosen


def test_an_input_that_falls_to_the_other_side_of_zero_by_rounding_is_a_choice() -> None:
    # given one input of a ReLU that is just above zero in one mode and just below in the other
    def turned(training: Kinked) -> None:
        training.sign = -1.0

    whole, chosen = chosen_with(turned)
    # then the gradients are far apart, and with the reference's choice they are not
    assert whole > 100 * THRESHOLD
    assert chosen is not None
    assert chosen.drift.score <= THRESHOLD
    assert chosen.flipped == 1
    assert chosen.ops == ("relu",)


def test_a_real_shift_is_no_choice() -> None:
    # given a ReLU whose inputs are shifted by much more than rounding
    def shifted(training: Kinked) -> None:
        training.shift = 0.01

    whole, chosen = chosen_with(shifted)
    # then the choices of the reference do not explain it
    assert whole > THRESHOLD
    assert chosen is not None
    assert chosen.drift.score > THRESHOLD


def test_steps_within_rounding_are_not_asked() -> None:
    found = localized(sides(Kinked, nothing))
    assert found.chosen is None
