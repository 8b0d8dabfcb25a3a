"""pytorch#175919: a compiled resize of an expanded view reads on past the ten values of its base."""

import torch


def resized(x):
    repeated = torch.as_strided(x, (100,), (0,))
    return torch.ops.aten.resize(repeated, (50,))


x = torch.arange(1.0, 11.0)
print(resized(x))
print(torch.compile(resized)(x))
