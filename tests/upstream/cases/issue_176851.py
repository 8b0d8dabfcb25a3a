"""pytorch#176851: a class attribute changes between two calls, and the compiled function keeps the first value."""

import torch


class Setting:
    factor = 1.0


def scaled(x):
    return x * Setting.factor


x = torch.tensor([4.0])
compiled = torch.compile(scaled)
compiled(x)

Setting.factor = 10.0
print(scaled(x))
print(compiled(x))
