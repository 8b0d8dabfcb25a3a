"""The script declares where a step ends: `numdrift.step`.

Where: updates that numdrift cannot see, as in evolution strategies, which have no gradient. The script declares
loss and step; the parameters are those of the model that is called.
"""

import torch
import torch.nn.functional as F
from torch import nn

import numdrift

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device).requires_grad_(False)
parameters = list(model.parameters())
inputs, labels = torch.randn(16, 8).to(device), torch.randint(0, 4, (16,)).to(device)
best = F.cross_entropy(model(inputs), labels).item()
for _ in range(4):
    before = [parameter.clone() for parameter in parameters]
    for parameter in parameters:
        parameter.add_(0.1 * torch.randn(parameter.shape).to(device))
    loss = F.cross_entropy(model(inputs), labels)
    numdrift.log(loss=loss)
    if loss.item() < best:
        best = loss.item()
    else:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)
    numdrift.step()
    print("loss", loss.item())
