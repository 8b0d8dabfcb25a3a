"""pytorch#184893: compiled min of a boolean tensor returns the indices of other elements."""

import torch


def smallest(x):
    return x.min(0)


torch.manual_seed(0)
x = torch.randint(2, size=(6, 32), dtype=torch.bool)
print(smallest(x).indices)
print(torch.compile(smallest)(x).indices)
