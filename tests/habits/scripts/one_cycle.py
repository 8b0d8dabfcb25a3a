"""A OneCycle schedule, stepped after every batch.

Where: image classification. The learning rate and the momentum of each step are recorded with it, so two runs whose
schedules differ are told apart from two that compute differently.
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
        return self.fc2(F.relu(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=6)
inputs, labels = torch.randn(6, 16, 8), torch.randint(0, 4, (6, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print("loss", loss.item(), "next lr", scheduler.get_last_lr()[0])
