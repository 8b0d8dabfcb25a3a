"""pytorch#183894: argmin of a transposed tensor counts its elements in the wrong order after an in-place sine."""

import torch


def smallest(x):
    x.sin_()
    return x.transpose(0, 1).argmin()


torch.manual_seed(0)
x = torch.randn(5, 7)
print(smallest(x.clone()))
print(torch.compile(smallest)(x.clone()))
