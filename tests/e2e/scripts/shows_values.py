"""A training that looks at its values: a hidden layer within the forward, the loss, and a sum by a step closure.

--silent looks at nothing. --print prints by Python's own `print` where the values are computed.
"""

import argparse

import torch
from torch import nn

import numdrift

parser = argparse.ArgumentParser()
parser.add_argument("--silent", action="store_true")
parser.add_argument("--print", action="store_true")
parser.add_argument("--outputs", action="store_true", help="Show what the script keeps only.")
options = parser.parse_args()


def show(name: str, value: torch.Tensor) -> None:
    """Print a value in the way that was asked for."""
    if options.print:
        print(name, value)
    elif not options.silent:
        numdrift.print(name, value)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        if not options.outputs:
            show("hidden", hidden)
        output: torch.Tensor = self.last(hidden)
        return output


device = numdrift.device()
torch.manual_seed(0)
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(2, 4).to(device), torch.randn(2, 1).to(device)
for step in range(3):
    optimizer.zero_grad()
    output = model(x)
    loss = (output - y).square().mean()
    show("loss", loss)
    if not options.silent and not options.print:
        numdrift.after_step(lambda step, output: print("sum", step, output.sum().item()), step, output)
    loss.backward()
    optimizer.step()
