"""pytorch#139476: after parameters are frozen and thawed again, a compiled module keeps an earlier graph."""

import torch


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        out = self.second(x + self.first.bias)
        self.calls += 1
        return out


def gradients(model, x):
    for _ in range(4):
        model.second.requires_grad_(model.calls % 2 == 1)
        model.zero_grad()
        model(x).sum().backward()
        weight = model.second.weight.grad
        yield model.first.bias.grad.sum().item(), None if weight is None else weight.sum().item()


torch.manual_seed(0)
x, eager, compiled = torch.randn(4, 8), Counted(), Counted()
compiled.load_state_dict(eager.state_dict())
print(list(gradients(eager, x)))
print(list(gradients(torch.compile(compiled), x)))
