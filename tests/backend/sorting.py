"""A training whose forward sorts."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        hidden, _ = torch.sort(torch.tanh(self.first(x)), dim=1)
        return self.second(hidden)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(6, 16, 8), torch.randn(6, 16, 4)
for x, y in zip(inputs, targets, strict=True):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
