"""pytorch#197448: a compiled fill of an expanded view leaves other values in it."""

import torch


def filled(x):
    rows = (x + 1.0).expand(3, -1)
    rows.fill_(2.0)
    return rows


x = torch.tensor([-1.0, -0.5, 0.0, 0.5])
print(filled(x))
print(torch.compile(filled)(x))
