"""Weights are parametrized by direction and length: `weight_norm`.

Where: speech synthesis, older generative models. What is trained are the originals; they are recorded as
`fc1.parametrizations.weight.original0`, as `state_dict()` names them.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = weight_norm(nn.Linear(8, 16))
        self.fc2 = weight_norm(nn.Linear(16, 4))

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
