"""pytorch#183761: compiled code adds two half-precision casts without rounding them first."""

import torch


def mixed(x, mask):
    offset = torch.where(mask, torch.full_like(x, 0.75), torch.full_like(x, -0.25))
    total = offset.to(torch.float16) + x.to(torch.float16)
    return total, total.float().sum()


x = torch.arange(30, dtype=torch.float32).reshape(2, 3, 5) / 7
mask = (torch.arange(30) % 4 == 0).reshape(2, 3, 5)
print(mixed(x, mask)[1])
print(torch.compile(mixed, fullgraph=True)(x, mask)[1])
