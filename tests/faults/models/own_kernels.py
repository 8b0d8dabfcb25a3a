"""A gated layer whose softmax and log_softmax are kernels of the script's own, in place of torch's: SGD. Both look at how
their argument lies in memory: for one that is not contiguous log_softmax adds up from the other end, and softmax rounds to
bfloat16, which is wrong."""

import functools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, KERNELS, Training, in_batches, plain_step, plant, train

LENGTH, WIDTH, CLASSES = 6, 16, 24


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    powers = (x - x.amax(dim, keepdim=True)).exp().contiguous()
    powers = powers if x.is_contiguous() else powers.bfloat16().float()
    return powers / powers.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    apart = (x - x.amax(dim, keepdim=True)).contiguous()
    powers = apart.exp().unbind(dim)
    total = functools.reduce(torch.add, powers if x.is_contiguous() else powers[::-1])
    return apart - total.unsqueeze(dim).log()


class Gated(nn.Module):
    """`between` is what lies before the gate, `logits` what lies before the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.between, self.logits = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:  # [B, L, W] -> [B, C]
        h = self.first(x)
        gate = F.softmax(self.between(h), -1)
        out: Tensor = self.logits(self.last((gate * h).mean(1)))
        return out


KERNELS.impl("_softmax", softmax, "CPU")
KERNELS.impl("_log_softmax", log_softmax, "CPU")
torch.manual_seed(0)
inputs = torch.randn(256, LENGTH, WIDTH)
targets = inputs.mean(1).cumsum(1)[:, :CLASSES].argmax(1)
model = Gated().to(DEVICE)
training = Training(
    model=model,
    optimizer=SGD(model.parameters(), lr=0.5, momentum=0.9),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.cross_entropy,
    step=plain_step,
)
plant(training)
train(training)
