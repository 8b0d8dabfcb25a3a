"""Fused and foreach optimizers.

Where: speed. They are other kernels for the same mathematics; the recorded hyper-parameters say which one a run
had.
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
slow, fast = list(model.fc1.parameters()), list(model.fc2.parameters())
optimizers = [
    torch.optim.AdamW(slow, lr=0.01, fused=True),
    torch.optim.SGD(fast, lr=0.1, momentum=0.9, foreach=True),
]
inputs, labels = torch.randn(3, 16, 8), torch.randint(0, 4, (3, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    print("loss", loss.item())
