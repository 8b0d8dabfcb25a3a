"""pytorch#174386: compiled empty_like ignores that deterministic algorithms fill new memory."""

import torch

torch._inductor.config.fallback_random = True
torch.use_deterministic_algorithms(True)


def unfilled(x):
    return torch.empty_like(x * 2)


torch.manual_seed(0)
x = torch.randn(4, 4)
print(unfilled(x))
print(torch.compile(unfilled)(x))
