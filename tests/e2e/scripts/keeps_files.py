"""Train four steps, going on from a checkpoint where there is one, and write files as scripts do.

keeps_files.py [--checkpoint snapshot.pt]: the checkpoint is read, and written anew at the end. What a rank sees is
printed.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, default=Path("snapshot.pt"))
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(16, 200)
    model = nn.Sequential(nn.Linear(200, 100), nn.Tanh(), nn.Linear(100, 1))
    if args.checkpoint.exists():
        model.load_state_dict(torch.load(args.checkpoint))
        print("resumed")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
    if not rank:
        torch.save(model.state_dict(), args.checkpoint)
        if Path("old").is_dir():
            Path("old").rename("older")
            Path("data.txt").write_text("written over", encoding="utf-8")
            Path("gone.txt").unlink()
    if "RANK" in os.environ:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    print(sorted(path.name for path in Path.cwd().iterdir() if path.name != "runs"))


if __name__ == "__main__":
    main()
