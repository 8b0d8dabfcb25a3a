"""pytorch#197582: a compiled indexed assignment adds twice where a computed index repeats."""

import torch


def add_one(values):
    index = torch.arange(4) % 2
    values[index] = values[index] + 1.0
    return values


values = torch.tensor([1.0, 2.0, 3.0, 4.0])
print(add_one(values.clone()))
print(torch.compile(add_one)(values.clone()))
