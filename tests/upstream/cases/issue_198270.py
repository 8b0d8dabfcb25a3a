"""pytorch#198270: an in-place sum with mirrored rows reads rows that it has written, after an index_put_."""

import torch


def double_and_mirror(x):
    x.index_put_((torch.arange(x.size(0)),), x * 2.0)
    x.add_(x.flip(0))
    return x


torch.manual_seed(0)
x = torch.rand(4, 8)
print(double_and_mirror(x.clone()))
print(torch.compile(double_and_mirror)(x.clone()))
