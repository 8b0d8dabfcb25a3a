"""The training of pytorch/examples' mnist, written anew: random images in place of a download.

python tests/performance/mnist.py --images 640 [--compile]    # 10 steps of 64
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:  # [B, 1, 28, 28] -> [B, 10]
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def images(count: int, seed: int) -> TensorDataset:
    """Each class is a bright bar at a place of its own, in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    pixels = torch.randn(count, 1, 28, 28, generator=generator)
    for digit in range(10):
        pixels[labels == digit, :, 2 * digit + 4] += 2
    return TensorDataset(pixels, labels)


def test(model: nn.Module, loader: "DataLoader[tuple[Tensor, ...]]", size: int) -> None:
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            right += int((output.argmax(1) == target).sum())
    print(f"test: average loss {loss / size:.4f}, accuracy {right}/{size}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    training = DataLoader(images(args.images, 1), batch_size=args.batch_size, shuffle=True)
    held_out = DataLoader(images(1000, 2), batch_size=1000)
    model = Net()
    trained = torch.compile(model) if args.compile else model
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for number, (data, target) in enumerate(training):
            optimizer.zero_grad()
            loss = F.nll_loss(trained(data), target)
            loss.backward()
            optimizer.step()
            if number % args.log_interval == 0:
                print(f"epoch {epoch}, batch {number} of {len(training)}: loss {loss.item():.6f}")
        test(model, held_out, 1000)
        scheduler.step()


if __name__ == "__main__":
    main()
