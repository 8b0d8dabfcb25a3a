"""Attention with a mask in a model that has one very large direction, as trained language models have: bfloat16, SGD.

    python tests/gpu/trainings/masked.py --steps 4

All scores are near -120, which is no harm: softmax looks at differences. The kernel of cuDNN that torch 2.11 to 2.13 call
by default on Hopper gives NaN for the gradient of the queries then, as the 192 places leave 64 of its last 128 empty
(pytorch/pytorch#196678).
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, PLACES, BATCH = 64, 192, 4
LARGE = -120 * WIDTH**0.5


class Attention(nn.Module):
    """[B, T, W] -> [B, T, W], each place sees those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (0.1 * self.q(x)).unsqueeze(1), (0.1 * self.k(x)).unsqueeze(1), self.v(x).unsqueeze(1)
        q = torch.cat([torch.ones_like(q[..., :1]), q[..., 1:]], dim=3)
        k = torch.cat([torch.full_like(k[..., :1], LARGE), k[..., 1:]], dim=3)
        seen = torch.ones(PLACES, PLACES, dtype=torch.bool, device=x.device).tril()
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        y: Tensor = self.out(mixed.squeeze(1))
        return y


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Attention().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(args.steps, BATCH, PLACES, WIDTH)
    for step in range(args.steps):
        x = inputs[step].to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            y = model(x)
        loss = (y.float() - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
