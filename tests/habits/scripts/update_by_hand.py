"""`backward()`, then `p -= lr * p.grad` by hand: no optimizer.

Where: lectures, first scripts. Without an optimizer a step ends where the next forward begins.
"""

import torch
import torch.nn.functional as F
from torch import nn

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
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    print("loss", loss.item())
