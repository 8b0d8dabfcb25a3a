"""Train a small model for --steps steps, and print a digest of its parameters and losses.

python snapshots.py --steps 4 [--nan-at 2] [--index-at 2] [--callback]

At the first step the batch holds a NaN, at the second an index that its embedding does not have. With --callback the
script itself says what is kept of its executions, step by step, and answers wrongly in the end.
"""

import argparse
import hashlib
import os

import torch
from torch import nn

import numdrift

ANSWERS = ["inputs", "outputs", "inputs outputs", "", "everything"]


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.mixed = nn.Linear(8, 8)
        self.normed = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 1)

    def forward(self, indices: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:  # [B], [B, 1] -> [B, 1]
        hidden = torch.tanh(self.mixed(self.table(indices)) * scale)
        output: torch.Tensor = self.head(self.normed(hidden))
        return output


def choose(name: str, device_index: int, execution_count: int, step: int) -> str:
    if "forward" not in name:
        return ""
    if step == len(ANSWERS):
        raise LookupError("no answer is left")
    return ANSWERS[step]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--nan-at", type=int, default=-1)
    parser.add_argument("--index-at", type=int, default=-1)
    parser.add_argument("--callback", action="store_true")
    args = parser.parse_args()
    if args.callback:
        assert numdrift.on_snapshot(choose) is None
    torch.manual_seed(0)
    device = torch.device(os.environ.get("DEVICE", "cpu"))
    model = Words().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    digest = hashlib.sha256()
    for step in range(args.steps):
        indices = torch.randint(0, 11, (16,))
        indices[3] = 99 if step == args.index_at else indices[3]
        scale = torch.full((16, 1), float("nan") if step == args.nan_at else 1.5)
        optimizer.zero_grad()
        loss = model(indices.to(device), scale.to(device)).square().mean()
        loss.backward()
        optimizer.step()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().numpy().tobytes())
    print("digest", digest.hexdigest())


if __name__ == "__main__":
    main()
