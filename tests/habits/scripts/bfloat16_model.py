"""The whole model is in bfloat16: `model.to(dtype=torch.bfloat16)`.

Where: fine-tuning of large models. Parameters are recorded as they are, in bfloat16; a float32 loss beside them stays
float32.
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
        return self.fc2(F.silu(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device=device, dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(4, 16, 8, dtype=torch.bfloat16), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)).float(), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
