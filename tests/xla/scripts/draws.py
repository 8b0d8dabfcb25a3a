"""A training with dropout, whose masks are drawn on the device, where noise is also mixed into its batches."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(16, 1)
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(64, 8).cuda(), torch.randn(64, 1).cuda()
for _ in range(4):
    optimizer.zero_grad()
    noisy = torch.tanh(x + 0.1 * torch.randn(64, 8).cuda())
    torch.nn.functional.mse_loss(model(noisy), y).backward()
    optimizer.step()
