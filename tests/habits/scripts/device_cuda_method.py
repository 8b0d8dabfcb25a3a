"""`.cuda()` is written into the script.

Where: research code that has only ever run on one GPU. numdrift sends each `.cuda()` to the mode's device, so the
script also runs on a machine without a GPU. The run reports how many calls it redirected and where.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
inputs, labels = torch.randn(96, 8), torch.randint(0, 4, (96,))
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(4):
    x, y = (
        inputs[step * 24 : step * 24 + 24].cuda(),
        labels[step * 24 : step * 24 + 24].cuda(non_blocking=True),
    )
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
