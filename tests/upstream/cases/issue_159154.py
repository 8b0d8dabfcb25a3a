"""pytorch#159154: a compiled normalization writes past the end of a buffer that is too small."""

import torch


def normalized(values, rates):
    weights = torch.exp(-torch.einsum("i...,i->i...", values, rates))
    totals = torch.einsum("i...->i", weights)
    return torch.einsum("i,i...->i...", 1 / totals, weights)


values, rates = torch.ones(5, 1, 32, 32), torch.ones(5)
print(normalized(values, rates).sum())
print(torch.compile(normalized)(values, rates).sum())
