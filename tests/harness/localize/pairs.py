"""Two tapes of one training step from one state, side b with something planted in it, and the noise of side a."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.causes.localized_step import LocalizedStep
from numdrift.harness.localize.execute.hybrid import Values
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.execute.tape_pair import TapePair, paired
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.tape.replaying.ensemble import measure_noise
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.tape import Tape

from ..tape.trainings import Training, recorded

THRESHOLD = 16.0

Plant = Callable[[Any], object]


def nothing(training: Any) -> None:
    """Plants nothing."""


class Layer(nn.Module):
    """x + outer(act(inner(norm(x)))); `residual` and `normed` say what is added and what the inner layer reads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.act: nn.Module = nn.GELU()
        self.scores: Callable[[Tensor], Tensor] = lambda h: F.softmax(h, -1)
        self.adds_normed = False

    def forward(self, x: Tensor) -> Tensor:  # [B, D]
        normed = self.norm(x)
        out: Tensor = self.outer(self.act(self.inner(normed)) * self.scores(normed).sum(-1, keepdim=True))
        return (normed if self.adds_normed else x) + out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.layers = nn.ModuleList([Layer(8), Layer(8)])
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(8, 4)
        self.between: Callable[[Tensor], Tensor] = lambda h: h

    def forward(self, x: Tensor) -> Tensor:
        h = self.layers[1](self.between(self.layers[0](self.first(x))))
        logits: Tensor = self.head(self.drop(h))
        return logits


class Small(Training):
    """Two residual layers, dropout, AdamW; whatever a fault may change is an attribute."""

    def __init__(self) -> None:
        self.net = Net()
        super().__init__(self.net, torch.optim.AdamW(self.net.parameters(), lr=1e-2, foreach=False))
        self.x, self.y = torch.randn(16, 6), torch.randint(0, 4, (16,))
        self.loss: Callable[[Tensor], Tensor] = lambda logits: F.cross_entropy(logits, self.y)
        self.clipped = False

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.loss(self.net(self.x)))
        if self.clipped:
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()


@dataclass(frozen=True, slots=True)
class Sides:
    """Both tapes, and what the steps gave in plain PyTorch, where no tape was recorded."""

    a: Tape
    b: Tape

    def pair(self) -> TapePair:
        return paired(flow_of(self.a), flow_of(self.b))


def stepped(make: Callable[[], Training], plant: Plant = nothing, warm: int = 1) -> Training:
    """A training from seed 0 that has taken `warm` steps and then had something planted."""
    torch.manual_seed(0)
    training = make()
    for _ in range(warm):
        training.step()
    torch.manual_seed(7)
    plant(training)
    return training


def sides(make: Callable[[], Training], plant: Plant, before: Plant = nothing, warm: int = 1) -> Sides:
    """Both tapes of one step; `before` is planted in both sides."""

    def both(training: Any) -> None:
        before(training)
        torch.manual_seed(7)
        plant(training)

    return Sides(reference(make, before, warm), stepped(make, both, warm).taped(warm))


@cache
def reference(make: Callable[[], Training], before: Plant, warm: int) -> Tape:
    """Side a, recorded once for all who plant something else beside it."""
    return stepped(make, before, warm).taped(warm)


def real(make: Callable[[], Training], *plants: Plant, warm: int = 1) -> Values:
    """What the step gives without tapes, with these things planted."""

    def all_of(training: Any) -> None:
        for plant in plants:
            plant(training)

    return stepped(make, all_of, warm).values()


@cache
def noise_of(tape: Tape, replays: int = 4) -> Noise:
    """The noise that random rounding makes."""
    found = measure_noise(tape, replays)
    assert found.equal, found.reason
    tensors = {name: TensorNoise(one.rms, one.norm, one.flips, one.reach) for name, one in found.tensors.items()}
    return Noise(tape.step, found.replays, tensors)


def localized(two: Sides, threshold: float = THRESHOLD) -> LocalizedStep:
    """The whole localization of one step, as the real one goes but without held processes."""
    held = {"a": StepSide(two.a, "first"), "b": StepSide(two.b, "second")}
    return localize_step(held, noise_of(two.a), threshold, lambda text: None)  # type: ignore[arg-type]


def taped(work: Callable[[Callable[[str, Tensor], None]], None]) -> Tape:
    """What `work` computes, which is given a function to watch values by."""
    with recorded() as recorder:
        work(recorder.watch)
    return recorder.tape()


def differing(found: Values, expected: Values) -> list[str]:
    """The names of which the bits differ, or that one of the two lacks."""
    return [
        name
        for name in {**found, **expected}
        if name not in found or name not in expected or not is_same(found[name], expected[name])
    ]
