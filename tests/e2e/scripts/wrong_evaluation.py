"""A training that is evaluated now and then; with FAULT, the model computes something else in evaluations alone."""

import os
import time

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(x))
        if not self.training and "FAULT" in os.environ:
            hidden = hidden * 1.01
        out: torch.Tensor = self.outer(hidden)
        return out


def evaluated(model: Net, x: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        score = float(model(x).mean())
    model.train()
    return score


def main() -> None:
    torch.manual_seed(0)
    model, data, held = Net(), torch.randn(12, 16, 6), torch.randn(16, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(12):
        loss = (model(data[step]) - data[step].sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        since = torch.tensor(time.perf_counter())  # no two runs have the same  # noqa: F841
        optimizer.step()
        if step % 3 == 2:
            print(evaluated(model, held))


main()
