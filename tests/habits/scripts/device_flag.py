"""The device comes from a flag whose default is "cuda".

Where: nearly every repository with an argparse. Nothing has to be passed: numdrift sends to the mode's device what
the script sends to the flag's.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device(args.device)
inputs, targets = torch.randn(args.steps, 16, 8), torch.randn(args.steps, 16, 1)


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = nn.Linear(8, width)
        self.output = nn.Linear(width, 1)

    def forward(self, x):
        return self.output(F.silu(self.hidden(x)))


model = Regressor(12).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for x, y in zip(inputs, targets, strict=True):
    loss = F.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
