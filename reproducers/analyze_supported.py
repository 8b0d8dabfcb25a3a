"""Two linear layers, ReLU, tanh and MSE with SGD: operators that a backend should support.

The first of the two examples for `numdrift analyze` (docs/guide/analyze.md).

    python reproducers/analyze_supported.py                  # eager
    DEVICE=lazy python reproducers/analyze_supported.py      # lazy tensors, TorchScript backend
    numdrift analyze reproducers/analyze_supported.py --mode lazy
"""

import os

import torch
import torch._lazy.ts_backend
from torch import Tensor, nn

EPOCHS = 2


class NN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Linear(4, 4)
        self.nl1 = nn.ReLU()
        self.layer2 = nn.Linear(4, 2)
        self.nl2 = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:  # [4] -> [2]
        x = self.nl1(self.layer1(x))
        y: Tensor = self.nl2(self.layer2(x))
        return y


def main() -> None:
    device = os.environ.get("DEVICE", "cpu")
    if device == "lazy":
        torch._lazy.ts_backend.init()
    torch.manual_seed(0)
    model = NN().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = nn.MSELoss()

    inp = torch.rand(4).to(device)
    target = torch.tensor([1.0, 0.0]).to(device)

    model.train()
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = loss_fn(model(inp), target)
        loss.backward()
        optimizer.step()
        if device == "lazy":
            torch._lazy.mark_step()
    print(f"final loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
