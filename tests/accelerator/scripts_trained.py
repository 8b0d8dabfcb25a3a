"""Trainings for the stand-in, as people write them for CUDA; none of them names the stand-in."""

from __future__ import annotations

WIDE = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    x, y = torch.randn(32, 64).cuda(), torch.randint(0, 10, (32,)).cuda(non_blocking=True)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), torch.cuda.is_available())
"""
"""Nearly all of its memory is that of parameters, gradients and the optimizer's state: 5 MiB each."""

DROPPING = """
import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(20, 32), nn.LayerNorm(32)
        self.qkv, self.out, self.drop = nn.Linear(32, 96), nn.Linear(32, 20), nn.Dropout(0.1)

    def forward(self, x):
        h = self.norm(self.embedding(x))
        q, k, v = self.qkv(h).view(*x.shape, 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
        return self.out(torch.tanh(h + self.drop(y.transpose(1, 2).reshape(h.shape))))


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator("cuda").manual_seed(5)
for step in range(4):
    x, y = torch.randint(0, 20, (4, 9)).cuda(), torch.randint(0, 20, (4, 9), device="cuda", generator=generator)
    noise = torch.randn(4, 9, 20, device="cuda") * 0.01
    loss = nn.functional.cross_entropy((model(x) + noise).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(step, loss.item())
"""
"""It draws on the device in four ways: a mask, one inside of attention, noise, and what a generator of its own gives."""

INDEXED = """
import torch
from torch import nn

torch.manual_seed(0)
embedding, out = nn.Embedding(8, 16).cuda(), nn.Linear(16, 4).cuda()
optimizer = torch.optim.SGD([*embedding.parameters(), *out.parameters()], lr=0.1)
for step in range(4):
    x, y = torch.randint(0, 8, (512,)).cuda(), torch.randint(0, 4, (512,)).cuda()
    h = torch.zeros(64, 16, device="cuda").index_add(0, torch.arange(512, device="cuda") % 64, embedding(x))
    loss = nn.functional.cross_entropy(out(h), y[:64])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
"""It adds rows up by their indices, which many devices do in another order each time."""

RANKS = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank, place = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(place)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(torch.device("cuda", place))
model = DistributedDataParallel(model, device_ids=[place])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for step in range(3):
    loss = model(torch.randn(16, 8, generator=generator).cuda(place)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(rank, step, next(model.parameters()).device, loss.item())
dist.destroy_process_group()
"""
