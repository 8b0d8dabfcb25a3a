"""An MLP in bfloat16 autocast with a moving average of its weights that is evaluated each step: fused AdamW."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 64)
        self.act, self.last = nn.GELU(), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 4]
        with torch.autocast(x.device.type, torch.bfloat16):
            y: Tensor = self.last(self.act(self.second(self.norm(self.act(self.first(x))))))
        return y.float()


def averaging_step(training: Training) -> Tensor:
    assert training.averaged is not None
    loss = plain_step(training)
    training.averaged.update_parameters(training.model)
    with torch.no_grad():
        training.averaged(training.held_out)
    return loss


torch.manual_seed(0)
inputs = torch.randn(256, 16)
targets = torch.tanh(inputs[:, :4] + inputs[:, 4:8])
held_out = torch.randn(32, 16).to(DEVICE)
model = MLP().to(DEVICE)
training = Training(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=averaging_step,
    averaged=AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
    held_out=held_out,
)
plant(training)
train(training)
