"""A moving average by `torch.optim.swa_utils.AveragedModel`, evaluated after each step.

Where: diffusion models, semi-supervised learning. The copy is a module of its own: it is recorded beside the model,
and no mode compiles it.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

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
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    x, y = x.to(device), y.to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    with torch.no_grad():
        averaged = F.cross_entropy(average(x), y)
    print("loss", loss.item(), "of the average", averaged.item())
