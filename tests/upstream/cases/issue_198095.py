"""pytorch#198095: an output that views an aliased input is rebuilt from the other input."""

import torch


def first_row_after_update(table, tail):
    table.add_(100)
    return tail[0]


base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
table = base.clone()
print(first_row_after_update(table, table[1:]))
table = base.clone()
print(torch.compile(first_row_after_update)(table, table[1:]))
