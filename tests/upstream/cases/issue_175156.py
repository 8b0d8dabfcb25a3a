"""pytorch#175156: a second random draw that nothing uses changes the first one when compiled."""

import torch

torch._inductor.config.fallback_random = True


def draw():
    torch.manual_seed(0)
    kept = torch.randint(0, 100, (4, 1))
    torch.randint(0, 100, (2, 1))
    return kept


print(draw().T)
print(torch.compile(draw)().T)
