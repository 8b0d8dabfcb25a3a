"""Each element of the gradients is clipped.

Where: reinforcement learning, older recurrent code. As with the norm, what is recorded is what the optimizer sees.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(F.elu(self.fc1(x))).squeeze(-1)


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, targets = torch.randn(4, 16, 8), 3 * torch.randn(4, 16)
for x, y in zip(inputs, targets, strict=True):
    loss = F.smooth_l1_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.02)
    optimizer.step()
    print("loss", loss.item())
