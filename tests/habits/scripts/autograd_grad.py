"""`torch.autograd.grad` and an update by hand: no `backward()`, no optimizer.

Where: bilevel optimization, samplers, physics. The loss is the value that is differentiated, and a step ends where
the next gradient of the same kind begins.
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
parameters = list(model.parameters())
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    grads = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter -= 0.1 * grad
    print("loss", loss.item())
