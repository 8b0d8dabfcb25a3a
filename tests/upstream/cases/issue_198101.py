"""pytorch#198101: a product of a dtype view of the input is computed after the input is changed in place."""

import torch


def halves(x):
    product = x.view(torch.int32) * 2
    product.sub_(-4)
    x[:, 2:5] = 2
    return product.view(torch.int64)


x = torch.arange(-12, 12, dtype=torch.int64).reshape(4, 6)
print(halves(x.clone())[0])
print(torch.compile(halves)(x.clone())[0])
