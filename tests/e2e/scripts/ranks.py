"""Train a small model on every rank's part of the data; rank --rank does at step --at what --then says.

torchrun --nproc-per-node 2 ranks.py --wrap none|ddp|fully|tensor|compiled-ddp|ddp-compiled
    [--at 2 --rank 1 --then raise|exit|hang|kill|scale|drift] [--backend gloo] [--save FOLDER]

The variable AT stands for --at. The rank that the variable FAULT names has a loss that is a thousandth too large. A run of one process, without torchrun's variables, trains on the whole batch. With --save each rank writes its losses
and its own parts of the parameters as RANK.npz.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(8, width)
        self.down = nn.Linear(width, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.down(torch.tanh(self.up(inputs)))
        return outputs


def wrapped(model: nn.Module, how: str, world: int) -> Any:
    if how == "ddp":
        return DistributedDataParallel(model)
    if how == "compiled-ddp":
        return torch.compile(DistributedDataParallel(model))
    if how == "ddp-compiled":
        return DistributedDataParallel(torch.compile(model))
    if how == "fully":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    if how == "tensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (world,))
        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def go_wrong(how: str, model: nn.Module) -> None:
    parameter = next(model.parameters())
    if how == "raise":
        raise ValueError("this rank went wrong")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(600)
    if how == "scale":  # between backward and step: this rank's part of one gradient
        assert parameter.grad is not None
        with torch.no_grad():
            local(parameter.grad).mul_(1.5)
    if how == "drift":
        with torch.no_grad():
            local(parameter).view(-1)[1] += 0.01


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrap", default="ddp")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--width", type=int, default=6)
    parser.add_argument("--at", type=int, default=-1)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--then", default="raise")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()

    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        dist.init_process_group(args.backend)
    torch.manual_seed(0)
    inputs = torch.randn(16 * args.steps, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    parts = 1 if args.wrap == "tensor" else world  # every rank of a tensor-parallel model sees the whole batch
    place = rank if parts > 1 else 0
    sampler: DistributedSampler[Any] = DistributedSampler(data, parts, place, shuffle=False)
    loader = DataLoader(data, batch_size=16 // parts, sampler=sampler)
    model = wrapped(Model(args.width), args.wrap, world) if world > 1 else Model(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    at = int(os.environ.get("AT", args.at))
    fault = os.environ.get("FAULT") == str(rank)
    losses = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        if (step, rank) == (at, args.rank) and args.then != "scale":
            go_wrong(args.then, model)
        loss = nn.functional.mse_loss(model(x), y)
        if fault:
            loss = loss * 1.001
        loss.backward()
        if (step, rank) == (at, args.rank) and args.then == "scale":
            go_wrong(args.then, model)
        optimizer.step()
        losses.append(loss.item())
    print(f"rank {rank}: {losses[-1]:.6f}")
    if args.save is not None:
        args.save.mkdir(parents=True, exist_ok=True)
        named: dict[str, Any] = {f"param/{name}": local(one).detach().numpy() for name, one in model.named_parameters()}
        np.savez(args.save / f"{rank}.npz", losses=np.array(losses), **named)
    if world > 1:
        with contextlib.suppress(RuntimeError):
            dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
