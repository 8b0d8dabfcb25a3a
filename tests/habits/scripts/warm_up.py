"""Warm-up and decay by a lambda.

Where: transformers. A schedule wraps `optimizer.step`, which hides nothing from numdrift: it listens to the optimizer's
own hooks.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WARM_UP = 6, 2
device = "cuda" if torch.cuda.is_available() else "cpu"


def factor(step):
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, betas=(0.9, 0.95))
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
inputs, labels = torch.randn(STEPS, 16, 8), torch.randint(0, 4, (STEPS, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print("loss", loss.item())
