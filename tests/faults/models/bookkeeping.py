"""An MLP whose script keeps a state of its own: the last losses, averaged weights, and a batch that depends on both."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.lr_scheduler import ReduceLROnPlateau

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, in_batches, plant, train


class TanhMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 8] -> [B, 1]
        y: Tensor = self.last(torch.tanh(self.first(x)))
        return y


def bookkeeping_step(training: Training) -> Tensor:
    """The loss is weighed by the mean of the last ones, and teaches what the averaged weights say as well. Once it
    is low enough, the inputs are larger."""
    [(inputs, targets)] = training.batches[training.number]
    recent = losses[-4:]
    if recent and sum(recent) / len(recent) < EASY:
        inputs = inputs * 1.5
    training.optimizer.zero_grad()
    prediction = training.model(inputs)
    with torch.no_grad():
        taught = functional_call(training.model, averaged, (inputs,))
    loss = training.loss(prediction, targets) + 0.1 * training.loss(prediction, taught)
    (loss / (1 + sum(recent) / max(1, len(recent)))).backward()
    training.optimizer.step()
    for name, p in training.model.named_parameters():
        averaged[name].lerp_(p.detach(), 0.1)
    losses.append(loss.item())
    plateau.step(losses[-1])
    return loss.detach()


EASY = 0.2
torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = torch.sin(inputs.sum(1, keepdim=True) / 4)
model = TanhMLP().to(DEVICE)
losses: list[float] = []
averaged = {name: p.detach().clone() for name, p in model.named_parameters()}
training = Training(
    model=model,
    optimizer=AdamW(model.parameters(), lr=0.02),
    batches=in_batches(inputs, targets, size=64, steps=14),
    loss=F.mse_loss,
    step=bookkeeping_step,
)
plateau = ReduceLROnPlateau(training.optimizer, factor=0.5, patience=1, threshold=0.2)
plant(training)
train(training)
