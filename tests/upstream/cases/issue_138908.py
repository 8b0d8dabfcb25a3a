"""pytorch#138908: an indexed in-place sum over repeated indices is applied twice when compiled."""

import torch


def double_row(index, table):
    index = index + 10
    table[index] += table[index]


torch.manual_seed(0)
index = torch.full((1, 2), -10)
table = torch.randn(2, 32)
eager, compiled = table.clone(), table.clone()
double_row(index, eager)
torch.compile(double_row, dynamic=True)(index, compiled)
print(eager[0, :4], compiled[0, :4])
