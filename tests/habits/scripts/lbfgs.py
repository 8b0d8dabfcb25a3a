"""LBFGS, whose step calls a closure as often as its line search needs.

Where: style transfer, fitting of small models, physics-informed networks. A step has a loss for each call of the
closure.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(1, 12)
        self.output = nn.Linear(12, 1)

    def forward(self, x):
        return self.output(torch.tanh(self.hidden(x)))


torch.manual_seed(0)
x = torch.linspace(-1, 1, 32)[:, None]
x, y = x.to(device), torch.sin(3 * x).to(device)
model = Net().to(device)
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=4, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    print("  loss", loss.item())
    return loss


for step in range(3):
    loss = optimizer.step(closure)
    print("step", step, "began with", loss.item())
