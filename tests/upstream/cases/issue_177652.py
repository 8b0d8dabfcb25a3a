"""pytorch#177652: compiled randn_like of a transposed tensor places the same random numbers elsewhere."""

import torch

torch._inductor.config.fallback_random = True


def noise(x):
    torch.manual_seed(0)
    return torch.randn_like(x)


x = torch.zeros(4, 5).permute(1, 0)
print(noise(x))
print(torch.compile(noise)(x))
