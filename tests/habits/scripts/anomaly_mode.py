"""`torch.autograd.set_detect_anomaly(True)`, and a step that is skipped because the loss is not finite.

Where: hunting NaNs. A loss without a `backward()` belongs to no step.
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.autograd.set_detect_anomaly(True)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(5, 16, 8), torch.randint(0, 4, (5, 16))
inputs[2, 0, 0] = float("inf")
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device) - x.to(device).mean()), y.to(device))
    if not torch.isfinite(loss):
        print("left out:", loss.item())
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
