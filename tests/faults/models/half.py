"""A residual network that is all in float16, its parameters and its gradients, with root mean square norms: SGD."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.residual import INPUTS, OUTPUTS, Residual
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train


def squares(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(prediction.float(), targets)


torch.manual_seed(0)
inputs = torch.randn(256, INPUTS)
targets = torch.sin(inputs[:, :OUTPUTS] + inputs[:, OUTPUTS : 2 * OUTPUTS])
model = Residual().to(DEVICE, torch.float16)
training = Training(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    batches=[[(x.half(), y) for x, y in parts] for parts in in_batches(inputs, targets, size=64, steps=12)],
    loss=squares,
    step=plain_step,
)
plant(training)
train(training)
