"""A step whose products add in a different order each time, unless torch is set to be deterministic; FAULT scales a
layer."""

import os

import torch

ORDERS = torch.Generator()
ORDERS.seed()  # from the operating system


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    order = torch.arange(x.shape[1])
    if not torch.are_deterministic_algorithms_enabled():
        order = torch.randperm(x.shape[1], generator=ORDERS)
    total = torch.zeros(x.shape[0], y.shape[1])
    for k in order:
        total = total + x[:, [k]] * y[k]
    return total


LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("mm", product, "CPU")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16, bias=False), torch.nn.Linear(16, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        if os.environ.get("FAULT"):
            hidden = hidden * 1.001
        output: torch.Tensor = self.second(hidden)
        return output


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(4):
    x, y = torch.randn(32, 8), torch.randn(32, 4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
