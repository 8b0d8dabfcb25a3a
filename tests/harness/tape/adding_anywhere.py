"""An op that adds in another order each time, as kernels do that add atomically; and a step that calls it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.tape import Tape

OPS = torch.library.Library("adding", "DEF")
OPS.define("anywhere(Tensor x) -> Tensor")
OPS.define("anywhere_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
ORDERS = torch.Generator().manual_seed(0)


def anywhere(x: Tensor) -> Tensor:
    """Add up the rows, in a random order."""
    total = torch.zeros_like(x[0])
    for row in torch.randperm(len(x), generator=ORDERS):
        total += x[row]
    return total


def anywhere_(x: Tensor, y: Tensor) -> Tensor:
    """Add these rows to x, in a random order."""
    for row in torch.randperm(len(y), generator=ORDERS):
        x += y[row]
    return x


OPS.impl("anywhere", anywhere, "CPU")
OPS.impl("anywhere_", anywhere_, "CPU")

X = torch.rand(64, 16, generator=torch.Generator().manual_seed(1)) + 0.5


def step_of(work: Callable[[Tensor], Tensor], x: Tensor = X) -> Tape:
    """Return the tape of a step that only computes a loss."""
    recorder = TapeRecorder(0, "train.py", modules=False)
    recorder.start()
    recorder.watch("loss 0", work(x))
    recorder.stop()
    return recorder.tape()


def summed(x: Tensor) -> Tensor:
    """Add in another order each time, out of place, and then compute what repeats."""
    loss: Tensor = (torch.ops.adding.anywhere(x) / 100).tanh().sum()
    return loss


def summed_in_place(x: Tensor) -> Tensor:
    """The same, in place."""
    total = x[0] * 2
    torch.ops.adding.anywhere_(total, x)
    return (total / 100).tanh().sum()
