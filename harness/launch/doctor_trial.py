"""Two steps of the smallest training script that uses a compiler and an optimizer. The doctor runs it in each mode."""

import os

import torch

torch.manual_seed(0)
device = torch.device(os.environ.get("DEVICE", "cpu"))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(16, 4).to(device), torch.randn(16, 1).to(device)
for _ in range(2):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
