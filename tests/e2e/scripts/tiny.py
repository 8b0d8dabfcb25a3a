"""Train a small model for --steps steps; at step --at, do what --then says.

python tiny.py --steps 10 --at 4 --then raise|exit|kill|nan|hang|child|full|memory
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch


def go_wrong(how: str) -> None:
    if how == "raise":
        raise ValueError("the step went wrong\nwith a second line")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("child.pid").write_text(str(child.pid))
    if how in ("hang", "child"):
        time.sleep(600)
    if how == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    if how == "memory":
        torch.empty(1 << 55, dtype=torch.uint8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--at", type=int, default=-1)
    parser.add_argument("--then", default="raise")
    parser.add_argument("--width", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device(os.environ.get("DEVICE", "cpu"))
    model = torch.nn.Sequential(torch.nn.Linear(4, args.width), torch.nn.Tanh(), torch.nn.Linear(args.width, 1))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 4).to(device)
    targets = inputs.sum(1, keepdim=True).tanh()
    for step in range(args.steps):
        if step == args.at:
            go_wrong(args.then)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        if step == args.at and args.then == "nan":
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB")


if __name__ == "__main__":
    main()
