"""A small transformer that removes noise from waves. Mask, levels of noise and the noise itself are made in the loop, before the
model is called; AdamW."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plant, train

LENGTH, FEATURES, WIDTH, LEVELS = 8, 4, 16, 200


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.level, self.place = nn.Embedding(LEVELS, WIDTH), nn.Embedding(LENGTH + 1, WIDTH)
        self.first, self.norm = nn.Linear(FEATURES, WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, FEATURES)

    def forward(self, x: Tensor, mask: Tensor, t: Tensor, places: Tensor) -> Tensor:  # [B, T, F], [T, T], [B], [T]
        h = self.first(x) + self.level(t)[:, None] + self.place(places)
        normed = self.norm(h)
        q, k, v = self.query(normed), self.key(normed), self.value(normed)
        alike = q @ k.transpose(-1, -2) / WIDTH**0.5 - mask.float() * 1e9
        out: Tensor = self.last(torch.tanh(h + alike.softmax(-1) @ v))
        return out


def causal(length: int) -> Tensor:
    return torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)


def levels(count: int) -> Tensor:
    return torch.randint(0, LEVELS, (count,))


def noise_like(clean: Tensor) -> Tensor:
    return torch.randn(clean.shape)


def kept(t: Tensor) -> Tensor:
    """The share of the signal that is left at each level."""
    return torch.cos((t / LEVELS + 0.008) * 1.55).square()


def noisy(clean: Tensor, noise: Tensor, share: Tensor) -> Tensor:
    share = share[:, None, None]
    return share.sqrt() * clean + (1 - share).sqrt() * noise


def places(length: int) -> Tensor:
    return torch.arange(length)


def gains(count: int) -> Tensor:
    """How loud each sample is, drawn by NumPy."""
    drawn: Tensor = torch.from_numpy(np.random.default_rng(training.number).uniform(0.5, 1.5, count)).float()
    return drawn


def denoising_step(training: Training) -> Tensor:
    made = training.made
    [(clean, _)] = training.batches[training.number]
    clean = clean * made["gains"](len(clean))[:, None, None].to(DEVICE)
    t = made["levels"](len(clean)).to(DEVICE)
    noise = made["noise"](clean).to(DEVICE)
    x = made["noisy"](clean, noise, made["kept"](t))
    mask = made["causal"](LENGTH).to(DEVICE)
    where = made["places"](LENGTH).to(DEVICE)
    training.optimizer.zero_grad()
    loss = training.loss(training.model(x, mask, t, where), noise)
    loss.backward()
    training.optimizer.step()
    return loss.detach()


torch.manual_seed(0)
waves = torch.sin(torch.arange(LENGTH)[:, None] * (0.2 + torch.rand(96, 1, FEATURES)))
model = Denoiser().to(DEVICE)
training = Training(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
    batches=in_batches(waves, waves, size=8, steps=12),
    loss=F.mse_loss,
    step=denoising_step,
    made={
        "causal": causal,
        "levels": levels,
        "noise": noise_like,
        "kept": kept,
        "noisy": noisy,
        "places": places,
        "gains": gains,
    },
)
plant(training)
train(training)
