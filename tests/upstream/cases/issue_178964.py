"""pytorch#178964: the compiled maximum of a sum with a transposed tensor has indices of zero."""

import torch


def largest(a, b):
    return (a + b).max(dim=1)


torch.manual_seed(0)
a, b = torch.randn(8, 8).transpose(0, 1), torch.randn(8, 8)
print(largest(a, b).indices)
print(torch.compile(largest)(a, b).indices)
