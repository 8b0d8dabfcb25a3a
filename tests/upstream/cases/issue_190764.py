"""pytorch#190764: a compiled sum of int32 numbers does not wrap around, and is 2**32 away from the eager one."""

import torch


def row_sums(x, y, z, p, q, r):
    left = x @ y + x @ z
    right = p @ q + p @ r
    return (left + right).sum(dim=1)


torch.manual_seed(0)
edges = torch.tensor([-(2**31), -(2**30), -1, 0, 1, 2**30, 2**31 - 1]).to(torch.int32)
matrices = [edges[torch.randint(len(edges), (2, 2))] for _ in range(6)]
print(row_sums(*matrices))
print(torch.compile(row_sums, dynamic=False)(*matrices))
