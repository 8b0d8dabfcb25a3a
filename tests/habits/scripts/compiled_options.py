"""torch.compile with arguments: `fullgraph`, `dynamic`, and options of the backend.

Where: tuned code. The script's options stay in effect, beside the mode's own keys.
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
        return self.fc2(torch.sigmoid(self.fc1(x)))


torch.manual_seed(0)
net = Net().to(device)
model = torch.compile(net, fullgraph=True, dynamic=False, options={"epilogue_fusion": False})
optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
