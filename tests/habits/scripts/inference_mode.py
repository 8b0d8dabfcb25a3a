"""Evaluation in `torch.inference_mode()`, as a decorator.

Where: newer evaluation code. Its tensors have no version counter and cannot enter autograd; recording does not
touch them.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


@torch.inference_mode()
def accuracy(model, x, y):
    return (model(x).argmax(-1) == y).float().mean().item()


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
print("before", accuracy(model, inputs[0].to(device), labels[0].to(device)))
for x, y in zip(inputs, labels, strict=True):
    x, y = x.to(device), y.to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), "accuracy", accuracy(model, x, y))
