"""A residual network in float16 autocast, whose loss is scaled so that no gradient underflows: AdamW."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.residual import INPUTS, OUTPUTS, Residual
from tests.faults.training import DEVICE, Training, in_batches, plant, train


class Automatic(Residual):
    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 4]
        with torch.autocast(x.device.type, torch.float16):
            return super().forward(x).float()


def scaled_step(training: Training) -> Tensor:
    [(inputs, targets)] = training.batches[training.number]
    training.optimizer.zero_grad()
    loss = training.loss(training.model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(training.optimizer)
    scaler.update()
    return loss.detach()


torch.manual_seed(0)
inputs = torch.randn(256, INPUTS)
targets = torch.sin(inputs[:, :OUTPUTS] + inputs[:, OUTPUTS : 2 * OUTPUTS])
model = Automatic().to(DEVICE)
scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
training = Training(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=scaled_step,
)
plant(training)
train(training)
