"""Hooks on tensors and modules change gradients and keep activations.

Where: gradient reversal, feature extraction, debugging. They run as under plain Python; a compiler traces a hook on
a module like its forward.
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
features = {}
model.fc1.register_forward_hook(lambda module, args, output: features.update(fc1=output))
model.fc1.weight.register_hook(lambda grad: -0.5 * grad)
model.fc2.register_full_backward_hook(lambda module, grad_input, grad_output: None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device)) + 0.01 * features["fc1"].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
