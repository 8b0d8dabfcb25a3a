"""A small convolutional network whose script sets torch to what it wants, at its start and again in its middle."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

MIDDLE = 5


class Network(nn.Module):
    """`tiny` is too small to be a normal number: where such are flushed to zero, nothing of it is left."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Conv1d(4, 8, 3, padding=1)
        self.wide, self.narrow = nn.Linear(32, 128), nn.Linear(128, 8)

    def forward(self, x: Tensor) -> Tensor:  # [B, 4, 32] -> [B, 8]
        h = torch.tanh(self.wide(torch.relu(self.images(x)).mean(1)))
        tiny = h * 1e-39
        y: Tensor = self.narrow(h + tiny * 1e38)
        return y


def setting_step(training: Training) -> Tensor:
    if training.number == MIDDLE:
        torch.set_num_threads(1)
        torch.backends.mkldnn.set_flags(False)
        torch.use_deterministic_algorithms(True)
    return plain_step(training)


torch.set_num_threads(2)
torch.set_flush_denormal(True)
torch.set_float32_matmul_precision("medium")
torch.manual_seed(0)
inputs, targets = torch.randn(256, 4, 32), torch.randint(8, (256,))
model = Network().to(DEVICE)
training = Training(
    model=model,
    optimizer=AdamW(model.parameters(), lr=3e-3),
    batches=in_batches(inputs, targets, size=64, steps=14),
    loss=F.cross_entropy,
    step=setting_step,
)
plant(training)
train(training)
