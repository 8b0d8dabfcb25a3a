"""pytorch#190758: with a memory budget, the compiled backward draws a dropout anew."""

import torch
import torch._functorch.config
import torch.nn.functional as F

torch._functorch.config.activation_memory_budget = 0.0


def dropped(x, weight):
    return F.dropout(x @ weight, 0.5, training=True)


weight = torch.arange(1.0, 26.0).view(5, 5)
x = torch.ones(2, 5, requires_grad=True)
torch.manual_seed(42)
out = torch.compile(dropped)(x, weight)
out.sum().backward()

mask = (out.detach() != 0).float()
print(2.0 * mask @ weight.T)
print(x.grad)
