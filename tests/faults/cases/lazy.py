"""Faults that act only on tensors of the device `lazy`, and so in nothing that is executed on the CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, modules, parameter, replace

CASES = Cases("lazy", __name__)


def is_lazy(x: Tensor) -> bool:
    return x.device.type == "lazy"


@CASES.planted(models=("gru", "transformer"), modes=("lazy",), culprit={"phase": "forward", "op": "native_layer_norm"})
def norm_eps_where_lazy(training: Training) -> None:
    """Lazy tensors are normalized with eps 1e-3 instead of 1e-5."""
    norm = modules(training, nn.LayerNorm)[0]
    shape, weight, bias = tuple(norm.normalized_shape), norm.weight, norm.bias
    replace(norm, lambda x: F.layer_norm(x, shape, weight, bias, 1e-3 if is_lazy(x) else 1e-5))


@CASES.planted(models=("tanh_sam", "gru", "cnn"), modes=("lazy",), culprit={"phase": "forward"})
def loss_scaled_where_lazy(training: Training) -> None:
    """The loss of lazy tensors is one percent too large."""
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        mean = right(outputs, targets)
        return mean * torch.full_like(mean, 1.01) if is_lazy(mean) else mean

    training.loss = loss


@CASES.planted(models=("tanh_sam", "gru", "cnn"), modes=("lazy",), culprit={"phase": "forward"})
def logits_in_bf16_where_lazy(training: Training) -> None:
    """What a lazy model answers is rounded to bfloat16."""
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right(outputs.bfloat16().float() if is_lazy(outputs) else outputs, targets)

    training.loss = loss


@CASES.planted(models=("gru", "unet"), modes=("lazy",), culprit={"phase": "backward"})
def gradient_scaled_where_lazy(training: Training) -> None:
    """The gradients of one lazy parameter are one percent too large."""
    weight = parameter(training, "weight")
    weight.register_hook(lambda grad: grad * 1.01 if is_lazy(grad) else grad)


@CASES.planted(models=("gru",), modes=("lazy",), culprit={"phase": "optimizer"})
def rate_larger_where_lazy(training: Training) -> None:
    """The optimizer moves lazy parameters by one percent more."""
    optimizer: Any = training.optimizer
    right = optimizer.update

    def update(p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        right(p, gradient, group | {"lr": group["lr"] * 1.01} if is_lazy(p) else group)

    optimizer.update = update


@CASES.planted(models=("tanh_sam", "cnn"), modes=("lazy",), culprit={"phase": "forward"})
def inputs_in_half_where_lazy(training: Training) -> None:
    """A lazy model takes its inputs in half precision."""
    model = training.model
    right = model.forward
    replace(model, lambda x: right(x.half().float() if is_lazy(x) else x))


@CASES.planted(models=("tanh_sam", "gru"), modes=("lazy",), culprit={"phase": "forward"})
def weights_in_bf16_where_lazy(training: Training) -> None:
    """The last layer's weights are rounded to bfloat16 before a lazy product."""
    last: Any = training.model.get_submodule("last")
    replace(last, lambda x: F.linear(x, last.weight.bfloat16().float() if is_lazy(x) else last.weight, last.bias))
