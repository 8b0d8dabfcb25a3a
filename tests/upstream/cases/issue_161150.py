"""pytorch#161150: a compiled softmax of infinite products is 1, where the eager one is NaN."""

import torch


def scaled_softmax(x, scale):
    return torch.softmax(x * scale, dim=0)


torch.manual_seed(0)
x, scale = torch.randn(1, 10), float("inf")
print(scaled_softmax(x, scale))
print(torch.compile(scaled_softmax)(x, scale))
