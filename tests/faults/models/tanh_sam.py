"""A tanh MLP that learns a sine under sharpness-aware minimization: two passes a step."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SAM
from tests.faults.training import DEVICE, Training, in_batches, plant, train


class TanhMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 8] -> [B, 1]
        y: Tensor = self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return y


def sam_step(training: Training) -> Tensor:
    [(inputs, targets)] = training.batches[training.number]

    def closure() -> Tensor:
        loss = training.loss(training.model(inputs), targets)
        loss.backward()
        return loss.detach()

    training.optimizer.zero_grad()
    loss: Tensor = training.optimizer.step(closure)  # type: ignore[assignment, arg-type]
    return loss


torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = torch.sin(inputs.cumsum(1)[:, -1:])  # no sum: cases swap those
model = TanhMLP().to(DEVICE)
training = Training(
    model=model,
    optimizer=SAM(model.parameters(), lr=0.05, momentum=0.9, rho=0.05),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=sam_step,
)
plant(training)
train(training)
