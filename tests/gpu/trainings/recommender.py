"""A recommender with embeddings of users and items, whose gradients many rows add to: no two runs have the same bits.

    python tests/gpu/trainings/recommender.py --steps 8 [--compile]

FAULT=scale multiplies what the tower of the items returns by 1.001.
"""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn

USERS, ITEMS, WIDTH, BATCH = 512, 128, 64, 4096
FAULT = os.environ.get("FAULT", "")


class Recommender(nn.Module):
    """Two towers, [B] and [B] -> [B]."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.first, self.second = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.bias = nn.Parameter(torch.zeros(ITEMS))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        tower = self.items(items)
        if FAULT == "scale":
            tower = tower * 1.001
        h = F.gelu(self.first(torch.cat([self.users(users), tower], dim=1)))
        likes: Tensor = self.second(h).squeeze(1) + self.bias[items]
        return likes


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    model = Recommender().to(args.device)
    if args.compile:
        model.compile()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    order = torch.Generator().manual_seed(0)
    for step in range(args.steps):
        users = torch.randint(USERS, (BATCH,), generator=order)
        items = torch.randint(ITEMS, (BATCH,), generator=order)
        liked = ((users * 7 + items * 3) % 5 == 0).float().to(args.device)
        loss = F.binary_cross_entropy_with_logits(model(users.to(args.device), items.to(args.device)), liked)
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
