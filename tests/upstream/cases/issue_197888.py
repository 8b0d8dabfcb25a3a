"""pytorch#197888: the compiled backward of adaptive_max_pool3d scatters gradients to wrong places in channels_last_3d."""

import torch
import torch.nn.functional as F


def pooled(x):
    return F.adaptive_max_pool3d(x, (2, 3, 5))


torch.manual_seed(0)
x = torch.randperm(4 * 4 * 6 * 10).float().view(1, 4, 4, 6, 10).to(memory_format=torch.channels_last_3d)
x.requires_grad_()
weight = torch.arange(1.0, 121.0).view(1, 4, 2, 3, 5)

(pooled(x) * weight).sum().backward()
eager = x.grad

x.grad = None
(torch.compile(pooled)(x) * weight).sum().backward()
print((eager - x.grad).abs().max())
