"""Five steps of a convolutional net with group normalization: its kernels are not the same in all versions of torch."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
images, classes = torch.randn(32, 1, 8, 8), torch.randint(0, 4, (32,))
for _ in range(5):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), classes)
    loss.backward()
    optimizer.step()
