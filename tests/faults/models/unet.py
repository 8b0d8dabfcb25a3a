"""A small U-shaped network that removes noise: depthwise and transposed convolutions, group norm, SiLU; AdamW that warms up."""

import functools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

SIZE, WIDTH = 8, 8


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm, self.act, self.project = nn.GroupNorm(2, width), nn.SiLU(), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, C, H, W]
        out: Tensor = x + self.project(self.act(self.norm(self.depthwise(x))))
        return out


class Gate(nn.Module):
    """Mixes channels, each weighted by how alike it is to a picture that is learnt for it."""

    def __init__(self, width: int, places: int) -> None:
        super().__init__()
        self.pictures = nn.Parameter(torch.randn(width, places))
        self.mix = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, C, H, W]
        alike = torch.sigmoid(F.cosine_similarity(x.flatten(2), self.pictures, dim=2))  # [B, C]
        return x + torch.einsum("bchw,bc,cd->bdhw", x, alike, self.mix)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block1 = nn.Conv2d(1, WIDTH, 3, padding=1), Block(WIDTH)
        self.down, self.block2 = nn.Conv2d(WIDTH, 2 * WIDTH, 2, stride=2), Block(2 * WIDTH)
        self.gate = Gate(2 * WIDTH, (SIZE // 2) ** 2)
        self.up, self.last = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 2, stride=2), nn.Conv2d(WIDTH, 1, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 1, H, W] -> [B, 1, H, W]
        skipped = self.block1(self.stem(x))
        deep = self.gate(self.block2(self.down(skipped)))
        y: Tensor = self.last(skipped + self.up(deep))
        return y


torch.manual_seed(0)
waves = torch.arange(SIZE) * (0.3 + torch.rand(256, 1))
clean = torch.sin(waves[:, None, :, None] + waves[:, None, None, :])
noisy = clean + 0.3 * torch.randn(clean.shape)
model = UNet().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
training = Training(
    model=model,
    optimizer=optimizer,
    batches=in_batches(noisy, clean, size=16, steps=12),
    loss=functools.partial(F.huber_loss, delta=0.5),
    step=plain_step,
    clip=0.1,
    scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=6),
)
plant(training)
train(training)
