"""pytorch#191499: the compiled minimum of small positive bytes is 0, and its index is outside of the tensor."""

import torch


def smallest(x):
    return x.amin(), x.argmin()


x = torch.tensor([5, 1, 100, 3, 7, 8, 9, 13, 100, 120, 127, 2, 6, 4, 11, 12, 90, 80], dtype=torch.uint8)
print(smallest(x))
print(torch.compile(smallest)(x))
