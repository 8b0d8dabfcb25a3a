"""pytorch#182765: the compiled gradient of diagonal_scatter is zero outside of the diagonal too."""

import torch


def total(x, diagonal):
    return torch.diagonal_scatter(x, diagonal, 0).sum()


torch.manual_seed(0)
x, diagonal = torch.randn(8, 8, requires_grad=True), torch.randn(8, requires_grad=True)
total(x, diagonal).backward()
print(x.grad[0])

x.grad = None
torch.compile(total)(x, diagonal).backward()
print(x.grad[0])
