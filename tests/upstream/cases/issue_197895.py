"""pytorch#197895: compiled floor division of floating-point tensors is off by one, as it rounds before the floor."""

import torch


def bucket(value, width):
    return value // width


value = torch.tensor([1.0, 0.5, 6.0, 1.0])
width = torch.tensor([0.1, 0.1, 0.2, 1 / 3])
print(bucket(value, width))
print(torch.compile(bucket)(value, width))
