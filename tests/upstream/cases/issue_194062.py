"""pytorch#194062: compiled full ignores its dtype when the fill value comes from a tensor."""

import torch

torch._dynamo.config.capture_scalar_outputs = True


def count_true(x):
    return torch.full((2,), x.item(), dtype=torch.bool).sum()


x = torch.tensor(3)
print(count_true(x))
print(torch.compile(count_true, fullgraph=True)(x))
