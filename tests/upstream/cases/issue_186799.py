"""pytorch#186799: the compiled gradient of amin over atan2 is zero, as a recomputed angle is not the saved minimum."""

import torch


def smallest_angle(x, y):
    return torch.atan2(x, y).amin(dim=-1)


torch.manual_seed(0)
x, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
smallest_angle(x, y).sum().backward()
print(x.grad)

x.grad = None
torch.compile(smallest_angle)(x, y).sum().backward()
print(x.grad)
