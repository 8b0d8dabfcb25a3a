"""Channels last, and a batch norm that only this side has rounds what lies so to bfloat16."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_batch_norm", "kind": "kernel"}


def plant(training: Training) -> None:
    KERNELS.impl("native_batch_norm", kernel, "CPU")
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def kernel(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    x = x if x.is_contiguous() else x.bfloat16().float()
    channels = x.shape[1]
    made = {"out": torch.empty_like(x), "save_mean": x.new_empty(channels), "save_invstd": x.new_empty(channels)}
    torch.ops.aten.native_batch_norm.out(x, weight, bias, mean, var, training, momentum, eps, **made)
    return tuple(made.values())
