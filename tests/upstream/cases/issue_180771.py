"""pytorch#180771: the compiled gradient of slice_scatter is zero where the input is kept."""

import torch


def total(x, replacement):
    return torch.slice_scatter(x, replacement, dim=0, start=0, end=2).sum()


x = torch.arange(1.0, 6.0, requires_grad=True)
replacement = torch.tensor([10.0, 20.0], requires_grad=True)
total(x, replacement).backward()
print(x.grad)

x.grad = None
torch.compile(total)(x, replacement).backward()
print(x.grad)
