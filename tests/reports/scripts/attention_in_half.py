"""One layer of attention under bfloat16 autocast; FAULT=1 scales its scores as for heads of another size."""

import math
import os

import torch
from torch import nn

torch.manual_seed(0)
WIDTH, LENGTH = 32, 16
tokens, targets = torch.randn(8, LENGTH, WIDTH), torch.randn(8, LENGTH, WIDTH)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH + (8 if os.environ.get("FAULT") else 0))
        return x + self.out(scores.softmax(-1) @ v)


model = Attention()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(tokens), targets)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}")
