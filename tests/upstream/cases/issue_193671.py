"""pytorch#193671: a checkpointed RReLU computes its gradient from slopes that were not written yet."""

import torch
from torch.utils.checkpoint import checkpoint


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = torch.nn.Linear(64, 64), torch.nn.RReLU(0.1, 0.9)

    def forward(self, x):
        return self.act(self.linear(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(16, 64)]


def gradient(call):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(64, 64, requires_grad=True)
    call(block, x).sum().backward()
    return x.grad


if __name__ == "__main__":
    plain = gradient(lambda block, x: block(x))
    checkpointed = gradient(lambda block, x: checkpoint(block, x, use_reentrant=False))
    print((plain - checkpointed).abs().max())
