"""Faults that only the shorter batches meet: those of the model `ragged` whose rows have five tokens, every second one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..case import Cases
from ..training import KERNELS, Training, modules, replace

CASES = Cases("ragged", __name__)

SHORT, LONG, WIDTH = 5, 8, 24


@CASES.planted(models=("ragged",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "neighbours"})
def short_rows_scaled(training: Training) -> None:
    """The means of shorter rows are taken as one percent larger."""
    neighbours = training.model.get_submodule("neighbours")

    def forward(x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        return torch.tanh(x + (mean * 1.01 if x.shape[1] == SHORT else mean))

    replace(neighbours, forward)


@CASES.planted(models=("ragged",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "neighbours"})
def short_rows_padded(training: Training) -> None:
    """The mean of a shorter row counts the tokens that it lacks."""
    neighbours = training.model.get_submodule("neighbours")
    replace(neighbours, lambda x: torch.tanh(x + x.sum(1, keepdim=True) / LONG))


@CASES.planted(models=("ragged",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "neighbours"})
def short_rows_in_half(training: Training) -> None:
    """Shorter rows are averaged in half precision."""
    neighbours = training.model.get_submodule("neighbours")

    def forward(x: Tensor) -> Tensor:
        mean = x.half().mean(1, keepdim=True).float() if x.shape[1] == SHORT else x.mean(1, keepdim=True)
        return torch.tanh(x + mean)

    replace(neighbours, forward)


@CASES.planted(models=("ragged",), modes=("cpu", "compile"), culprit={"phase": "forward", "op": "native_layer_norm"})
def short_rows_norm_eps(training: Training) -> None:
    """Shorter rows are normalized with eps 1e-3 instead of 1e-5."""
    [norm] = modules(training, nn.LayerNorm)
    weight, bias = norm.weight, norm.bias
    replace(norm, lambda x: F.layer_norm(x, (WIDTH,), weight, bias, 1e-3 if x.shape[1] == SHORT else 1e-5))


@CASES.planted(models=("ragged",), culprit={"phase": "forward"})
def short_rows_loss_over_all(training: Training) -> None:
    """The loss of shorter rows is averaged over as many tokens as longer rows have."""
    right, rows = training.loss, 32

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        mean = right(outputs, targets)
        return mean * (SHORT / LONG) if len(targets) == rows * SHORT else mean

    training.loss = loss


@CASES.planted(models=("ragged",), modes=("cpu", "compile"), culprit={"phase": "backward"})
def short_rows_gradient_halved(training: Training) -> None:
    """Half of the gradient of shorter rows is lost before the first layer."""
    hidden: Any = training.model.get_submodule("hidden")
    right = hidden.forward

    def forward(x: Tensor) -> Tensor:
        if x.shape[1] == SHORT:
            x = x.detach() + 0.5 * (x - x.detach())
        y: Tensor = right(x)
        return y

    replace(hidden, forward)


@CASES.planted(models=("ragged",), culprit={"phase": "backward", "op": "tanh_backward"})
def short_rows_tanh_backward_bf16(training: Training) -> None:
    """The derivative of tanh is rounded to bfloat16 for shorter rows."""

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        right = grad * (1 - y * y)
        return right.bfloat16().float() if y.shape[1] == SHORT else right

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(models=("ragged",), culprit={"phase": "data", "step": 9})
def short_rows_tags_shifted(training: Training) -> None:
    """The tags of one shorter batch are those of the next token."""
    [(inputs, targets)] = training.batches[9]
    training.batches[9] = [(inputs, targets.view(-1, SHORT).roll(1, 1).reshape(-1))]
