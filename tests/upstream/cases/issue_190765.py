"""pytorch#190765: a compiled flip of repeated values reads before the start of its input for a dynamic shape."""

import torch


def mirrored(x):
    return torch.flip(torch.repeat_interleave(torch.flatten(x + 1.0), 2), [0])


torch.manual_seed(0)
x = torch.randn(2, 2)
print(mirrored(x))
print(torch.compile(mirrored, dynamic=True)(x))
