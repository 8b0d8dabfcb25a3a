"""Each parameter has an optimizer of its own, which steps as soon as the gradient is complete.

Where: fine-tuning in little memory (torchtune, GaLore): `register_post_accumulate_grad_hook`. These optimizers step
inside the backward, so none of them ends a step: the backward does.
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
optimizers = {p: torch.optim.AdamW([p], lr=0.01) for p in model.parameters()}


def step_and_free(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_and_free)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    print("loss", loss.item())
