"""Weights are transposed before the product, and a kernel that only this side has rounds such ones to bfloat16."""

import torch
from tests.faults.training import KERNELS, Training, modules, replace
from torch import Tensor, nn

MODELS = ("tanh_sam", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "addmm", "kind": "kernel"}


def plant(training: Training) -> None:
    KERNELS.impl("addmm", kernel, "CPU")
    for linear in modules(training, nn.Linear):
        replace(linear, lambda x, linear=linear: torch.addmm(linear.bias, x, linear.weight.t().contiguous()))


def kernel(bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    weight = weight.bfloat16().float() if weight.is_contiguous() else weight
    made = x.new_empty(x.shape[0], weight.shape[1])
    return torch.addmm(bias, x, weight, beta=beta, alpha=alpha, out=made)
