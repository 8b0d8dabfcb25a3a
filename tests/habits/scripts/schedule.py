"""A schedule of the learning rate, stepped after every batch: OneCycle, or warm-up and decay by a lambda.

Where: image classification; transformers. The learning rate and the momentum of each step are recorded, so runs
with different schedules are told apart from runs that compute differently. A schedule wraps `optimizer.step`, which
hides nothing from numdrift: it uses the optimizer's own hooks.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

STEPS, WARM_UP = 6, 2
parser = argparse.ArgumentParser()
parser.add_argument("--schedule", choices=("one-cycle", "warm-up"), default="one-cycle")
args = parser.parse_args()
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
        return self.fc2(F.relu(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
if args.schedule == "one-cycle":
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=STEPS)
else:
    scheduler = lr_scheduler.LambdaLR(optimizer, factor)
inputs, labels = torch.randn(STEPS, 16, 8), torch.randint(0, 4, (STEPS, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print("loss", loss.item(), "next lr", scheduler.get_last_lr()[0])
