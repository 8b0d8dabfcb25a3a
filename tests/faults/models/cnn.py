"""A small convolutional network with batch norm and max pooling: SGD with momentum and weight decay."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.last = nn.Linear(16 * 3 * 3, 10)

    def forward(self, x: Tensor) -> Tensor:  # [B, 1, 12, 12] -> [B, 10]
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        logits: Tensor = self.last(x.flatten(1))
        return logits


torch.manual_seed(0)
inputs = torch.randn(256, 1, 12, 12)
targets = inputs[:, 0, :10].mean(2).argmax(1)
model = CNN().to(DEVICE)
training = Training(
    model=model,
    optimizer=SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.cross_entropy,
    step=plain_step,
)
plant(training)
train(training)
