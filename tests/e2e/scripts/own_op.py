"""Train with an op of the script's own, which no other process knows. FAULT in the environment: it adds up in half precision."""

import os
from typing import Any

import torch
from torch import Tensor, nn

FAULT = bool(os.environ.get("FAULT"))


@torch.library.custom_op("numdrift_test::log_probabilities", mutates_args=())
def log_probabilities(x: Tensor) -> Tensor:
    powers = (x - x.amax(-1, keepdim=True)).exp()
    powers = powers.half().float() if FAULT else powers
    return x - x.amax(-1, keepdim=True) - powers.sum(-1, keepdim=True).log()


@log_probabilities.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def save(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


def backward(ctx: Any, gradient: Tensor) -> Tensor:
    (said,) = ctx.saved_tensors
    given: Tensor = gradient - said.exp() * gradient.sum(-1, keepdim=True)
    return given


log_probabilities.register_autograd(backward, setup_context=save)


class Told(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = log_probabilities(x)
        return said


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5), Told())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs, targets = torch.randn(64, 8), torch.randint(0, 5, (64,))
for _step in range(10):
    optimizer.zero_grad()
    loss = nn.functional.nll_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
print(f"last loss {loss.item():.6f}")
