"""pytorch#94775: compiled max_pool2d with ceil_mode returns a row of minus infinity too many."""

import torch
import torch.nn.functional as F


def pooled(x):
    return F.max_pool2d(x, 1, stride=(2, 2), padding=0, ceil_mode=True)


torch.manual_seed(420)
x = torch.randn(1, 1, 6, 7)
print(pooled(x).shape)
print(torch.compile(pooled)(x).shape)
