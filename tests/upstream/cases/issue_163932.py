"""pytorch#163932: a compiled softmax of numbers scaled by 1e14 is NaN, where the eager one is finite."""

import torch


def scaled_softmax(x):
    return torch.softmax(x * 1e14, dim=-1)


torch.manual_seed(0)
x = torch.rand(25) * 2 - 1
print(scaled_softmax(x))
print(torch.compile(scaled_softmax)(x))
