"""`torch.set_default_dtype(torch.float64)`.

Where: physics and Gaussian processes. Everything is recorded in float64, losses with all their digits.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(6, 2))
        self.heights = nn.Parameter(torch.zeros(6))

    def forward(self, points):
        distances = ((points[:, None] - self.centers) ** 2).sum(-1)
        return torch.exp(-distances) @ self.heights


points = (torch.rand(40, 2) * 2 - 1).to(device)
energies = torch.sin(3 * points[:, 0]) * points[:, 1]
model = Potential().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(5):
    loss = ((model(points) - energies) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
