"""A policy that swings a pendulum up, which NumPy simulates: each batch follows from what the policy answered before."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, plant, train

PENDULUMS, STEPS, SECONDS = 32, 14, 0.05


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 32), nn.LayerNorm(32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3] -> [B, 1], torques
        torque: Tensor = self.last(self.norm(torch.tanh(self.first(x))))
        return torque


class Pendulums:
    """Semi-implicit Euler steps of pendulums; the state is the angle from the top, and its speed."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(0)
        self.angle, self.speed = numbers.uniform(-3, 3, PENDULUMS), numbers.uniform(-1, 1, PENDULUMS)

    def seen(self) -> Tensor:
        state = np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], 1)
        return torch.from_numpy(state.astype(np.float32)).to(DEVICE)

    def move(self, torque: Tensor) -> None:
        force = np.clip(torque.squeeze(1).cpu().numpy().astype(np.float64), -2, 2)
        self.speed = self.speed + SECONDS * (15 * np.sin(self.angle) + 3 * force)
        self.angle = self.angle + SECONDS * self.speed


def swinging_step(training: Training) -> Tensor:
    """Learn the torque that brakes where the pendulum is fast, then let the policy move the pendulums."""
    inputs = pendulums.seen()
    training.optimizer.zero_grad()
    torque = training.model(inputs)
    loss = training.loss(torque, -inputs[:, 2:] - 2 * inputs[:, 1:2])
    loss.backward()
    training.optimizer.step()
    pendulums.move(torque.detach())
    return loss.detach()


torch.manual_seed(0)
pendulums = Pendulums()
model = Policy().to(DEVICE)
training = Training(
    model=model,
    optimizer=AdamW(model.parameters(), lr=3e-3),
    batches=[[] for _ in range(STEPS)],
    loss=F.mse_loss,
    step=swinging_step,
)
plant(training)
train(training)
