"""pytorch#143566: a compiled left shift by 64 bits returns the number itself instead of 0."""

import torch


def shifted(number, bits):
    return torch.bitwise_left_shift(number, bits)


number, bits = torch.tensor(1000), torch.tensor(64)
print(shifted(number, bits))
print(torch.compile(shifted)(number, bits))
