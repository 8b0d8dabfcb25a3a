"""pytorch#194976: a compiled clamp keeps an earlier bound after a Python number has become dynamic."""

import torch
import torch.nn.functional as F


def gated(x, limit):
    gate, up = torch.chunk(x, 2, dim=-1)
    return F.silu(gate).clamp(max=limit) * up.clamp(min=-limit, max=limit)


compiled = torch.compile(gated)
for width, requires_grad, limit in ((2, False, 1.0), (4, True, 0.5), (4, True, 1.0)):
    x = torch.full((1, width), 0.75, requires_grad=requires_grad)
    print(limit, gated(x, limit).tolist(), compiled(x, limit).tolist())
