"""pytorch#136662: torch.func.grad of two in-place sums into one column counts only one of them when compiled."""

import torch


def magnitude(x):
    total = torch.zeros_like(x)
    total[:, 0] += x[:, 2].abs()
    total[:, 0] += x[:, 2].abs()
    return total.sum()


def gradient(x):
    return torch.func.grad(magnitude)(x)


torch.manual_seed(0)
x = torch.randn(2, 3)
print(gradient(x))
print(torch.compile(gradient, fullgraph=True)(x))
