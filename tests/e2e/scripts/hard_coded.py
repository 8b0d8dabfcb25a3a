"""A training for one device that it names everywhere: `cuda`, or the one in BARE, as a test runs it by hand.

It prints the digits of its losses and parameters: two runs that print the same computed the same bits.
"""

from __future__ import annotations

import os

import torch

DEVICE = os.environ.get("BARE", "cuda")


class Net(torch.nn.Module):
    """Makes noise on its device in the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)
        self.drop = torch.nn.Dropout(0.1)
        self.outer = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.full((16,), 0.125, device=DEVICE)
        out: torch.Tensor = self.outer(self.drop(torch.tanh(self.inner(x) + noise)))
        return out


torch.manual_seed(0)
net = Net().to(DEVICE)
if "COMPILE" in os.environ:
    net.compile(backend=os.environ["COMPILE"])
optimizer = torch.optim.Adam(net.parameters(), 0.01)
scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0)
for _ in range(3):
    x = torch.randn(6, 8).to(DEVICE)
    y = torch.randint(0, 4, (6,), device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    print(float(loss).hex())
for name, parameter in net.state_dict().items():
    print(name, [value.hex() for value in parameter.flatten().tolist()])
