"""`torch.set_default_device("cuda")` at the top, no device anywhere else.

Where: newer scripts that want no `.to(device)`. The default device becomes the mode's.
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_device("cuda")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.second = nn.Linear(12, 3)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


# Drawn on the CPU, so that every device starts from the same numbers.
torch.manual_seed(0)
with torch.device("cpu"):
    model = Net()
    inputs, targets = torch.randn(4, 16, 6), torch.randn(4, 16, 3)
model.to("cuda")
inputs, targets = inputs.cuda(), targets.cuda()

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
weights = torch.tensor([1.0, 2.0, 0.5])
for x, y in zip(inputs, targets, strict=True):
    loss = (weights * (model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
