"""pytorch#198033: a compiled foreach addition reads its tensor at mirrored rows while it writes it."""

import torch


def add_mirrored(x):
    torch._foreach_add_([x], [x.flip(0)])
    return x


torch.manual_seed(0)
x = torch.rand(8, 8)
print(add_mirrored(x.clone()))
print(torch.compile(add_mirrored)(x.clone()))
