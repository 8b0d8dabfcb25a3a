"""A convolutional network with batch norm and dropout, SGD with momentum, on noise with a bright corner.

python tests/gpu/trainings/convnet.py --steps 8 [--compile]
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH = 32


class ConvNet(nn.Module):
    """[B, 3, 32, 32] images to [B, 4] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        )
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layers(x).mean((2, 3))
        logits: Tensor = self.head(self.drop(h))
        return logits


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    model = ConvNet().to(args.device)
    if args.compile:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(128, 3, 32, 32), torch.arange(128) % 4
    for label in range(4):
        top, left = 16 * (label // 2), 16 * (label % 2)
        images[labels == label, :, top : top + 16, left : left + 16] += 0.5
    for step in range(args.steps):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % len(images)
        x, y = images[rows].to(args.device), labels[rows].to(args.device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
