"""pytorch#185337: compiled code drops a cast to float16 and back, with which the function rounds on purpose."""

import torch


def rounded(x):
    halved = x.to(torch.float16).to(torch.float32)
    return halved, halved.sum(dim=1)


x = torch.arange(20, dtype=torch.float32).reshape(5, 4).t() / 7.0
print(rounded(x))
print(torch.compile(rounded, dynamic=False)(x))
