"""pytorch#181568: compiled code drops the cast of a matrix product to bfloat16 before it adds a bias."""

import torch


def layer(x, weight, bias):
    out = (x @ weight).to(torch.bfloat16) + bias
    return out, out.mean(-1)


torch.manual_seed(119)
x, weight, bias = torch.randn(2, 15, 32), torch.randn(32, 17), torch.randn(17)
eager = layer(x, weight, bias)
compiled = torch.compile(layer, fullgraph=True, dynamic=True)(x, weight, bias)
print([(a - b).abs().max() for a, b in zip(eager, compiled, strict=True)])
