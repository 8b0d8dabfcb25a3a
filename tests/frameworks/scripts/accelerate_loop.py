"""Train a classifier of points in a loop of one's own, with Accelerate for the device, the precision and accumulation.

On one device or on many:

    python accelerate_loop.py --output out
    python accelerate_loop.py --output out --accumulate 2 --mixed-precision bf16
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(32, 4)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(points))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--mixed-precision", default="no")
    options = parser.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=options.accumulate, mixed_precision=options.mixed_precision)
    set_seed(0)
    points = torch.randn(64, 8)
    labels = points[:, :4].argmax(1)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)
    loader = DataLoader(TensorDataset(points, labels), batch_size=16, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    for _ in range(options.epochs):
        for batch, target in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch), target)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            accelerator.print(f"loss {loss.item()}")

    accelerator.wait_for_everyone()
    options.output.mkdir(exist_ok=True)
    accelerator.save(accelerator.unwrap_model(model).state_dict(), options.output / "model.pt")


if __name__ == "__main__":
    main()
