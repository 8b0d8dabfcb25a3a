"""pytorch#197829: a compiled shift of rows drops its clone and reads rows that it has overwritten."""

import torch


def shift(x):
    x[1:] = x[:-1].clone()
    return x


torch.manual_seed(0)
x = torch.rand(3, 16, 16)
eager = shift(x.clone())
compiled = torch.compile(shift)(x.clone())
print((eager != compiled).sum(), "of", x.numel())
