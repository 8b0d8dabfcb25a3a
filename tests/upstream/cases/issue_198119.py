"""pytorch#198119: the compiled backward of avg_pool1d with ceil_mode divides the last window by its full size."""

import torch
import torch.nn.functional as F


def pooled(x):
    return F.avg_pool1d(x, kernel_size=3, stride=3, ceil_mode=True)


x = torch.arange(1.0, 6.0).reshape(1, 1, 5).requires_grad_()
pooled(x).sum().backward()
print(x.grad)

x.grad = None
torch.compile(pooled)(x).sum().backward()
print(x.grad)
