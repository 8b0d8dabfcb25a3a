"""`@torch.compile` decorates a method of the model's class.

Where: models with one expensive part. A mode that compiles compiles the whole model, with that part.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 16)
        self.value = nn.Linear(8, 16)
        self.output = nn.Linear(16, 4)

    @torch.compile(dynamic=False)
    def mixed(self, x):
        return F.silu(self.gate(x)) * self.value(x)

    def forward(self, x):
        return self.output(self.mixed(x))


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
