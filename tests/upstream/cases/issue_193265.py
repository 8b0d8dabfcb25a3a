"""pytorch#193265: cumsum of a constant without dimensions does not compile."""

import torch


def accumulated():
    return torch.tensor(5.0).cumsum(0)


print(accumulated())
print(torch.compile(accumulated)())
