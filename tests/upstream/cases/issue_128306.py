"""pytorch#128306: a compiled comparison with a Python number does not round the number to bfloat16."""

import torch


def above(scores, threshold):
    return torch.nonzero(scores > threshold)


scores = torch.tensor([[0.1, 0.2002, 0.3, 0.4]]).to(torch.bfloat16)
print(above(scores, 0.2))
print(torch.compile(above)(scores, 0.2))
