"""Models of ordinary size, trained for some steps on random data, written anew after well-known ones.

python tests/performance/ordinary_models.py resnet18 --steps 20 [--compile]
FAULT=scale python tests/performance/ordinary_models.py gpt2 --steps 5 --compile    # one activation is 2 % too large
"""

import argparse
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from ordinary_sequences import (  # type: ignore[import-not-found]
    Batch,
    Informer,
    LanguageModel,
    bert,
    following,
    gpt2,
    gpt2_medium,
    masked,
    next_words,
    planted,
    series,
    short,
)
from torch import Tensor, nn

# resnet18: 11 million parameters, images of 64 x 64


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.norm2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.beside: nn.Module = nn.Identity()
        if stride != 1:
            self.beside = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.beside(x))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        self.lower = nn.Sequential(*(Residual(*each) for each in widths))
        widths = [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.upper = nn.Sequential(*(Residual(*each) for each in widths))
        self.head = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, 64, 64] -> [B, 10]
        x = self.lower(F.max_pool2d(self.stem(x), 3, 2, 1))
        return self.head(self.upper(planted(x)).mean((2, 3)))  # type: ignore[no-any-return]


def images(generator: torch.Generator) -> Batch:
    return torch.randn(16, 3, 64, 64, generator=generator), torch.randint(10, (16,), generator=generator)


# unet: 17 million parameters, images of 32 x 32, two classes of pixels


class Double(nn.Sequential):
    def __init__(self, inner: int, outer: int, middle: int) -> None:
        super().__init__(
            nn.Conv2d(inner, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
            nn.Conv2d(middle, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True),
        )  # fmt: skip


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        down = [(3, 64), (64, 128), (128, 256), (256, 512), (512, 512)]
        self.down = nn.ModuleList(Double(inner, outer, outer) for inner, outer in down)
        self.up = nn.ModuleList(Double(2 * each, each // 2, each) for each in (512, 256, 128))
        self.last = Double(128, 64, 64)
        self.head = nn.Conv2d(64, 2, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, 2, H, W]
        kept = []
        for number, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if number else x)
            kept.append(x)
        x = planted(kept.pop())
        for block in (*self.up, self.last):
            upper = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = block(torch.cat([kept.pop(), upper], 1))
        return self.head(x)  # type: ignore[no-any-return]


def masks(generator: torch.Generator) -> Batch:
    pictures = torch.rand(4, 3, 32, 32, generator=generator)
    return pictures, (pictures.mean(1) > 0.5).long()


# diffusion: a U-Net with group norms, time embeddings and attention, 8 million parameters; it predicts the noise


class Timed(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inner), nn.GroupNorm(8, outer)
        self.conv1, self.conv2 = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(128, 2 * outer)
        self.beside: nn.Module = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        return self.beside(x) + self.conv2(F.silu(self.norm2(y) * (1 + scale) + shift))  # type: ignore[no-any-return]


class Attended(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mixed, self.out = (
            nn.GroupNorm(8, width),
            nn.Conv2d(width, 3 * width, 1),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, across = x.shape
        q, k, v = self.mixed(self.norm(x)).view(batch, 3, 4, width // 4, -1).transpose(3, 4).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(batch, width, height, across)
        return x + self.out(mixed)  # type: ignore[no-any-return]


class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.down = nn.ModuleList([Timed(64, 64), Timed(64, 128), Timed(128, 256)])
        self.middle, self.attention = Timed(256, 256), Attended(256)
        self.up = nn.ModuleList([Timed(512, 128), Timed(256, 64), Timed(128, 64)])

    def forward(self, noisy: Tensor) -> Tensor:  # [B, 4, H, W], the last channel is the time -> [B, 3, H, W]
        angles = noisy[:, 3:4, 0, 0] * torch.exp(-math.log(1e4) * torch.arange(32) / 32)
        time, x, kept = self.time(torch.cat([angles.sin(), angles.cos()], 1)), self.first(noisy), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.attention(planted(self.middle(x, time)))
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1), time)
        return self.last(x)  # type: ignore[no-any-return]


def noised(generator: torch.Generator) -> Batch:
    noise, pictures = (torch.randn(8, 3, 32, 32, generator=generator) for _ in range(2))
    time = torch.rand(8, 1, 1, 1, generator=generator)
    noisy = time * noise + (1 - time) * pictures
    return torch.cat([noisy, 100 * time.expand(8, 1, 32, 32)], 1), noise


# glow: an invertible network of 24 steps, trained by likelihood


class Coupling(nn.Module):
    """An activation norm, an invertible 1 x 1 convolution and an affine coupling."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(1, width, 1, 1)), nn.Parameter(torch.zeros(1, width, 1, 1))
        self.mixing = nn.Parameter(torch.linalg.qr(torch.randn(width, width))[0])
        self.net = nn.Sequential(
            nn.Conv2d(width // 2, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 1), nn.ReLU(),
            nn.Conv2d(64, width, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pixels = x.shape[2] * x.shape[3]
        x = F.conv2d(self.scale * (x + self.shift), self.mixing[:, :, None, None])
        logdet = pixels * (self.scale.abs().log().sum() + torch.linalg.slogdet(self.mixing)[1])
        kept, changed = x.chunk(2, 1)
        log_scale, moved = self.net(kept).chunk(2, 1)
        scale = torch.sigmoid(log_scale + 2)
        return torch.cat([kept, (changed + moved) * scale], 1), logdet + scale.log().sum((1, 2, 3))


class Glow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(12 * 2**level) for level in range(3) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, 32, 32] -> [B], in nats for each value
        size, likelihood = x[0].numel(), torch.zeros(len(x))
        for level in range(3):
            x = F.pixel_unshuffle(x, 2)
            for number in range(8):
                x, logdet = self.couplings[8 * level + number](x)
                likelihood = likelihood + logdet
            x = planted(x) if level == 1 else x
            if level < 2:
                x, out = x.chunk(2, 1)
                likelihood = likelihood - 0.5 * (out**2 + math.log(2 * math.pi)).sum((1, 2, 3))
        return (0.5 * (x**2 + math.log(2 * math.pi)).sum((1, 2, 3)) - likelihood) / size


def pictures(generator: torch.Generator) -> Batch:
    return torch.rand(8, 3, 32, 32, generator=generator) - 0.5, torch.zeros(8)


def classes(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target)


def words(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def average(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).mean()


Model = tuple[Callable[[], nn.Module], Callable[[torch.Generator], Batch], Callable[[Tensor, Tensor], Tensor]]

ORDINARY: dict[str, Model] = {
    "resnet18": (ResNet18, images, classes),
    "unet": (UNet, masks, classes),
    "gpt2": (gpt2, following, words),
    "gpt2-medium": (gpt2_medium, short, words),
    "bert": (bert, masked, words),
    "diffusion": (Diffusion, noised, F.mse_loss),
    "glow": (Glow, pictures, average),
    "transformer": (LanguageModel, next_words, words),
    "informer": (Informer, series, F.mse_loss),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=ORDINARY)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    make, batch, loss_of = ORDINARY[args.model]
    model, generator = make(), torch.Generator().manual_seed(2)
    trained = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(args.steps):
        inputs, target = batch(generator)
        optimizer.zero_grad()
        loss = loss_of(trained(inputs), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
