"""Sharpness-aware minimization: two backwards a step, by an optimizer class of the script's own.

Where: the SAM paper's code and its many copies. The outermost `step()` is the step; the base optimizer's inside it
is none. A step has two losses.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        grads = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        norm = torch.stack(grads).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    x, y = x.to(device), y.to(device)

    def closure(x=x, y=y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        print("loss", loss.item())
        return loss

    closure()
    optimizer.step(closure)
    optimizer.zero_grad()
