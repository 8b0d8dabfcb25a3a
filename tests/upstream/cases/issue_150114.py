"""pytorch#150114: the condition number of a singular matrix is huge in eager mode and infinite when compiled."""

import torch


def condition(x):
    return torch.linalg.cond(torch.arctan(x))


x = torch.ones(2, 2)
print(condition(x))
print(torch.compile(condition)(x))
