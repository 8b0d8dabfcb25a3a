"""A part of the model is called in the constructor, to find the size of its output.

Where: convolutional networks, reinforcement learning. This is no call of a model: the part is not compiled by
itself, and its parameters keep their names in the whole model.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self, shape=(1, 6, 6)):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
        with torch.no_grad():
            size = self.conv(torch.zeros(1, *shape)).shape[1]
        self.head = nn.Linear(size, 4)

    def forward(self, x):
        return self.head(self.conv(x))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(4, 8, 1, 6, 6), torch.randint(0, 4, (4, 8))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
