"""The gradients are clipped: their norm, or each element.

Where: recurrent networks and transformers; reinforcement learning. The digests of a step are those of the clipped
gradients, as the optimizer sees them.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--clip-norm", type=float)
parser.add_argument("--clip-value", type=float)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(4 * model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    if args.clip_norm:
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip_norm)
        print("norm", norm.item())
    if args.clip_value:
        nn.utils.clip_grad_value_(model.parameters(), args.clip_value)
    optimizer.step()
    print("loss", loss.item())
