"""pytorch#143978: the compiled sine of an arctangent of NaN is 1."""

import torch


def chain(x):
    return torch.sin(torch.atan(torch.angle(torch.rsqrt(x))))


torch.manual_seed(0)
x = torch.randn(10)
print(chain(x))
print(torch.compile(chain, fullgraph=True)(x))
