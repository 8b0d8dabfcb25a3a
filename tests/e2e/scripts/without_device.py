"""A training that never speaks of a device; with BARE, one that moves everything to that device, as a test runs it
by hand. It prints the digits of its losses."""

from __future__ import annotations

import copy
import os

import numpy as np
import torch

DEVICE = os.environ.get("BARE", "")


def there(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(DEVICE) if DEVICE else tensor


torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
if DEVICE:
    net.to(DEVICE)
average = copy.deepcopy(net)
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
inputs, labels = torch.randn(32, 8), torch.randint(0, 4, (32,))
total = there(torch.zeros(1))
for _ in range(4):
    chosen = torch.randperm(32)[:8]
    out = net(there(inputs[chosen] / 2))
    loss = torch.nn.functional.cross_entropy(out, there(labels[chosen]))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    total += loss.detach()
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), net.parameters(), strict=True):
            mine.data.mul_(0.5).add_(theirs.data, alpha=0.5)
    print(float(loss).hex())
    if not DEVICE:
        assert float(np.asarray(loss.detach())) == loss.item()
        assert (out.argmax(1) == labels[chosen]).sum().item() <= 8
print(float(total).hex())
