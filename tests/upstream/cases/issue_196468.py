"""pytorch#196468: a compiled attention takes its softmax over the last dimension, whichever one was asked for."""

import torch


def attention(query, key, value):
    scores = torch.matmul(query, key.transpose(-2, -1)) / 8.0
    return torch.matmul(torch.softmax(scores, dim=0), value)


torch.manual_seed(0)
query, key, value = torch.randn(4, 4, 2, 8), torch.randn(4, 4, 3, 8), torch.randn(4, 4, 3, 8)
eager = attention(query, key, value)
compiled = torch.compile(attention)(query, key, value)
print((eager - compiled).abs().max())
