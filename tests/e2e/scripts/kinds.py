"""Small trainings, each of a kind that a recorder may stumble over; FAULT in the environment plants a fault in it.

python kinds.py --kind tied|sparse|accumulation|unused|scheduled|unseeded|frozen|generators --steps 6
"""

import argparse
import os
import random

import numpy as np
import torch
from torch import Tensor, nn

FAULT = os.environ.get("FAULT", "")
DEVICE = os.environ.get("DEVICE", "cpu")


class Words(nn.Module):
    """Classifies bags of 16 words; `tied` shares the embedding with the output layer, `sparse` its gradient is sparse."""

    def __init__(self, *, tied: bool = False, sparse: bool = False, unused: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8, sparse=sparse)
        self.hidden = nn.Linear(8, 8)
        self.output = nn.Linear(8, 16, bias=False)
        if tied:
            self.output.weight = self.embedding.weight
        if unused:
            self.never = nn.Linear(3, 3)

    def forward(self, words: Tensor) -> Tensor:  # [N, 4] -> [N, 16]
        logits: Tensor = self.output(torch.tanh(self.hidden(self.embedding(words).mean(1))))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="tied")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(1 if FAULT == "init" else 0)
    random.seed(0)
    np.random.seed(0)
    kind = args.kind
    model = Words(tied=kind == "tied", sparse=kind == "sparse", unused=kind == "unused").to(DEVICE)
    if kind == "frozen":
        model.hidden.requires_grad_(requires_grad=False)
    lr = 0.005 if FAULT == "lr" else 0.05
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    if kind == "sparse":
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for step in range(args.steps):
        if FAULT == "python" and step == 2:
            random.random()
        words, labels = batch(step, kind)
        optimizer.zero_grad()
        parts = 2 if kind == "accumulation" else 1
        for part in range(parts):
            logits = model(words[part::parts].to(DEVICE))
            loss = nn.functional.cross_entropy(logits, labels[part::parts].to(DEVICE)) / parts
            if FAULT == "loss" and step >= 3:
                loss = loss * 1.01
            if FAULT == "nan" and step == 3:
                loss = loss * float("nan")
            if FAULT == "crash" and step == 3:
                raise ValueError("planted")
            loss.backward()
        optimizer.step()
        if kind == "scheduled":
            schedule.step()


def batch(step: int, kind: str) -> tuple[Tensor, Tensor]:
    shift = random.randrange(16) if kind == "generators" else 0
    generator = torch.Generator().manual_seed(99 if FAULT == "batch" and step == 3 else step)
    words = (torch.randint(16, (8, 4), generator=generator) + shift) % 16
    if kind == "unseeded":
        words = (words + int.from_bytes(os.urandom(1), "little")) % 16
    return words, words[:, 0].clone()


if __name__ == "__main__":
    main()
