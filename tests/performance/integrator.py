"""An integrator that is unrolled: a step of many small calls.

python tests/performance/integrator.py --calls 100000 --steps 3
SUM=turned python tests/performance/integrator.py    # the four slopes are added in another order, which rounds differently
FAULT=scale python tests/performance/integrator.py   # the last slope of a step in the middle is 2 % too large
"""

import argparse
import os

import torch
from torch import Tensor, nn

CALLS = 206
"""The calls of one step of the method, with those of its backward and those that return views."""


class Field(nn.Module):
    """The slope of a pendulum with friction, with a correction that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 4), nn.Linear(4, 2)

    def forward(self, state: Tensor) -> Tensor:  # [batch, 2] -> [batch, 2]
        learned: Tensor = self.outer(self.inner(state).tanh())
        return torch.stack([state[:, 1], -state[:, 0].sin()], 1) + 0.1 * learned


def integrated(field: Field, state: Tensor, count: int, dt: float = 0.01) -> Tensor:
    """Return the state after `count` steps of the classical Runge-Kutta method."""
    turned, fault = os.environ.get("SUM") == "turned", os.environ.get("FAULT") == "scale"
    for number in range(count):
        k1 = field(state)
        k2 = field(state + dt / 2 * k1)
        k3 = field(state + dt / 2 * k2)
        k4 = field(state + dt * k3)
        if fault and number == count // 2:
            k4 = k4 * 1.02
        total = k4 + 2 * k3 + 2 * k2 + k1 if turned else k1 + 2 * k2 + 2 * k3 + k4
        state = state + dt / 6 * total
    return state


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    field = Field()
    optimizer = torch.optim.SGD(field.parameters(), lr=0.01)
    state, goal = torch.randn(8, 2), torch.randn(8, 2)
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = (integrated(field, state, args.calls // CALLS) - goal).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
