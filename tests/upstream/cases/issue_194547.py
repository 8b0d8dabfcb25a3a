"""pytorch#194547: a compiled sample of a normal distribution has another dtype than the eager one."""

import torch


def sample(loc, scale):
    return torch.distributions.Normal(loc, scale).sample()


torch.manual_seed(0)
loc, scale = torch.zeros(8, dtype=torch.float16), torch.ones(8)
print(sample(loc, scale).dtype)
print(torch.compile(sample)(loc, scale).dtype)
