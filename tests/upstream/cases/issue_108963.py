"""pytorch#108963: a compiled function returns zero for the second of two equal values."""

import torch


def scaled_sum(source):
    total = torch.zeros(1, dtype=torch.double)
    index = torch.tensor([0])
    out = total.index_add(0, index, source, alpha=2.0) / 2
    return source, out


torch.manual_seed(0)
source = torch.rand(1, dtype=torch.double)
print(scaled_sum(source))
print(torch.compile(scaled_sum)(source))
