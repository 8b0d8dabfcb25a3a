"""pytorch#191837: a compiled fold of permuted windows writes past the end of its buffer."""

import torch
import torch.nn.functional as F


def merge_windows(x):
    columns = x.permute(0, 1, 4, 3, 2).reshape(1, 192 * 3 * 3, 2 * 2)
    return F.fold(columns, output_size=(4, 4), kernel_size=3, padding=1, stride=2)


torch.manual_seed(0)
x = torch.randn(1, 6, 4, 9, 32)
eager = merge_windows(x)
compiled = torch.compile(merge_windows, fullgraph=True)(x)
print((eager - compiled).abs().max())
