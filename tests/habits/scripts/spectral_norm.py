"""Weights are divided by their spectral norm: `spectral_norm`.

Where: discriminators of GANs. Each forward in training mode takes a power iteration, whose vectors are buffers: they are
recorded like the parameters, and a second execution of the step starts from the same ones.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = spectral_norm(nn.Linear(8, 16))
        self.fc2 = spectral_norm(nn.Linear(16, 4))

    def forward(self, x):
        return self.fc2(F.leaky_relu(self.fc1(x), 0.2))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
