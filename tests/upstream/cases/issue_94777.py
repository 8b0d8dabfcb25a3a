"""pytorch#94777: a compiled in-place logarithm is applied to a value that was computed before it."""

import torch


def logarithm(x):
    result = torch.log(x)
    x.log_()
    return result


x = torch.tensor(3.0)
print(logarithm(x.clone()))
print(torch.compile(logarithm)(x.clone()))
