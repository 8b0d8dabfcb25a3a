"""Kernels that are wrong only where a tensor lies otherwise in memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..case import Cases
from ..training import KERNELS, Training, modules, replace

CASES = Cases("layout", __name__)


@CASES.planted(models=("tanh_sam", "autoencoder"), culprit={"phase": "forward", "op": "addmm", "kind": "kernel"})
def addmm_wrong_when_contiguous(training: Training) -> None:
    """Weights are transposed before the product, and a kernel that only this side has rounds such ones to bfloat16."""

    def kernel(bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        weight = weight.bfloat16().float() if weight.is_contiguous() else weight
        made = x.new_empty(x.shape[0], weight.shape[1])
        return torch.addmm(bias, x, weight, beta=beta, alpha=alpha, out=made)

    KERNELS.impl("addmm", kernel, "CPU")
    for linear in modules(training, nn.Linear):
        replace(linear, lambda x, linear=linear: torch.addmm(linear.bias, x, linear.weight.t().contiguous()))


@CASES.planted(models=("cnn",), culprit={"phase": "forward", "op": "native_batch_norm", "kind": "kernel"})
def batch_norm_wrong_channels_last(training: Training) -> None:
    """Channels last, and a batch norm that only this side has rounds what lies so to bfloat16."""

    def kernel(
        x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
    ) -> tuple[Tensor, ...]:
        x = x if x.is_contiguous() else x.bfloat16().float()
        channels = x.shape[1]
        made = {"out": torch.empty_like(x), "save_mean": x.new_empty(channels), "save_invstd": x.new_empty(channels)}
        torch.ops.aten.native_batch_norm.out(x, weight, bias, mean, var, training, momentum, eps, **made)
        return tuple(made.values())

    KERNELS.impl("native_batch_norm", kernel, "CPU")
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@CASES.planted(models=("own_kernels",), culprit={"phase": "forward", "op": "_softmax", "kind": "layout"})
def softmax_wrong_when_strided(training: Training) -> None:
    """What a softmax takes lies transposed, and its kernel, which both sides have, computes in bfloat16 then."""
    replace(training.model.get_submodule("between"), transposed)


def transposed(h: Tensor) -> Tensor:
    return h.transpose(1, 2).contiguous().transpose(1, 2)
