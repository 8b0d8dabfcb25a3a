"""`torch.autocast("cuda")` in float16 with a GradScaler, which skips a step after an overflow.

Where: mixed precision on GPUs. The recorded loss is the one before scaling. A step that the scaler skips is a step
in which no parameter changes. On a device without autocast the run reports that it computes in float32.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device, init_scale=2.0**20)
inputs, labels = torch.randn(6, 16, 8), torch.randint(0, 4, (6, 16))
for x, y in zip(inputs, labels, strict=True):
    optimizer.zero_grad()
    with torch.autocast(device_type=device, dtype=torch.float16):
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print("loss", loss.item(), "scale", scaler.get_scale())
