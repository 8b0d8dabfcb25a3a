"""The optimizer receives parameters during the training: `add_param_group` unfreezes a layer.

Where: gradual unfreezing, progressive growing. A step records the tensors that exist in it.
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
model.fc1.requires_grad_(False)
optimizer = torch.optim.SGD(model.fc2.parameters(), lr=0.1)
inputs, labels = torch.randn(5, 16, 8), torch.randint(0, 4, (5, 16))
for step, (x, y) in enumerate(zip(inputs, labels, strict=True)):
    if step == 2:
        model.fc1.requires_grad_(True)
        optimizer.add_param_group({"params": model.fc1.parameters(), "lr": 0.05})
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
