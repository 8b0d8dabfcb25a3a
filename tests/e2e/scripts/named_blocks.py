"""Train a small MLP whose parts are blocks of a profile; print a digest of the parameters at the end.

python named_blocks.py --steps 10 --at 4 --then raise|kill
"""

import argparse
import gc
import hashlib
import os
import signal

import torch
import torch.nn.functional as F
from torch import nn

import numdrift


class MLP(nn.Module):
    def __init__(self, input_size: int = 10, output_size: int = 2, layers: tuple[int, int] = (5, 5)) -> None:
        super().__init__()
        self.fc1 = nn.Linear(input_size, layers[0])
        self.fc2 = nn.Linear(layers[0], layers[1])
        self.fc3 = nn.Linear(layers[1], output_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        with numdrift.phase("last_layer"):
            x = self.fc3(x)
        return F.log_softmax(x, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--at", type=int, default=-1)
    parser.add_argument("--then", default="")
    args = parser.parse_args()
    gc.set_threshold(20, 2, 2)  # what a trace leaves to the garbage collection is collected within the next one
    torch.manual_seed(0)
    device = os.environ.get("DEVICE", "cpu")
    model = MLP().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = nn.NLLLoss()
    model.train()
    with torch.profiler.record_function("epoch"):
        for step in range(args.steps):
            optimizer.zero_grad()
            train_x = torch.randn(1, 10).to(device)
            train_label = torch.tensor([1]).to(device)
            with numdrift.phase("model_build"):
                loss = loss_fn(model(train_x), train_label)
            if step == args.at and args.then == "raise":
                raise ValueError("the step went wrong")
            if step == args.at and args.then == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            with numdrift.phase("loss_backward"):
                loss.backward()
            with numdrift.phase("optimizer_step"):
                optimizer.step()
            numdrift.mark_step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
