"""pytorch#195214: compiled code compares a quotient before it is rounded to bfloat16, and finds no maximum."""

import torch


def ties(scores):
    scaled = scores / 1.7
    return (scaled == scaled.amax(dim=-1, keepdim=True)).sum(dim=-1)


torch.manual_seed(0)
scores = torch.randn(8, 64, dtype=torch.bfloat16)
print(ties(scores))
print(torch.compile(ties)(scores))
