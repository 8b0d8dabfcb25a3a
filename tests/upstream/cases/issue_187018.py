"""pytorch#187018: the compiled negative absolute value of bytes is summed as a negative number."""

import torch


def total(x):
    negative = -x.abs()
    return torch.cat([negative, negative]).sum()


x = torch.tensor([200, 200], dtype=torch.uint8)
print(total(x))
print(torch.compile(total)(x))
