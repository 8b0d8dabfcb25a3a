"""pytorch#185702: special functions of a strided slice, stacked in the last dimension, differ when compiled."""

import torch
import torch.nn.functional as F


def features(table, y, alpha, beta):
    x = table[..., 16]
    positive, rates = F.softplus(x) + 0.0001, F.softplus(y) + 0.0001
    gamma = torch.special.gammaln(positive + alpha.view(1, -1))
    error = torch.special.erf(x * beta.view(1, -1))
    entropy = torch.special.xlogy(positive, rates)
    return torch.stack([gamma, error, entropy], dim=-1)


torch.manual_seed(0)
table, y, alpha, beta = torch.randn(4, 8, 32), torch.randn(4, 8), torch.rand(8), torch.rand(8)
eager = features(table, y, alpha, beta)
compiled = torch.compile(features)(table, y, alpha, beta)
print((eager - compiled).abs().max())
