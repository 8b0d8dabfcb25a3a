"""pytorch#196570: a softmax over a mask that is filled in place does not compile."""

import torch


def masked(x):
    mask = torch.full((8, 8), -10000.0)
    mask[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
    return torch.softmax(x + mask, dim=-1)


torch.manual_seed(0)
x = torch.randn(8, 8)
print(masked(x).sum())
print(torch.compile(masked)(x).sum())
