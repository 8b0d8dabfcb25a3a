"""Losses and gradients that are infinite or not a number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..case import Cases
from ..training import KERNELS, Training, parameter

CASES = Cases("nonfinite", __name__)


@CASES.planted(models=("tanh_sam", "cnn"), expected="nonfinite", culprit={"phase": "backward"})
def gradient_of_root_of_zero(training: Training) -> None:
    """The norm of a vector of zeros, written with sqrt: the loss is right and its gradient is not a number."""
    right, bias = training.loss, parameter(training, "last.bias")

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        moved = bias - bias.detach()
        return right(outputs, targets) + 1e-3 * moved.square().sum().sqrt()

    training.loss = loss


@CASES.planted(models=("bag",), expected="nonfinite", culprit={"phase": "forward"})
def logarithm_of_zero(training: Training) -> None:
    """The entropy of targets that are 0 or 1 is added: 0 times the logarithm of 0."""
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right(outputs, targets) - (targets * targets.log()).mean()

    training.loss = loss


@CASES.planted(models=("transformer",), expected="different-setup")
def masked_row(training: Training) -> None:
    """The causal mask is strict: the first place sees nothing, and its softmax is 0 / 0."""
    core = training.model.get_submodule("blocks.0.attention.core")
    mask = core.get_buffer("causal")
    mask.copy_(torch.ones(mask.shape, dtype=torch.bool).tril(-1))


@CASES.planted(models=("gru", "cnn"), expected="nonfinite", culprit={"phase": "forward", "step": 5})
def nan_at_step_5(training: Training) -> None:
    """The loss is infinite times zero at step 5."""
    multiply_loss(training, lambda: float("nan") if training.number == 5 else 1.0)


def multiply_loss(training: Training, factor: Callable[[], float]) -> None:
    right = training.loss
    training.loss = lambda outputs, targets: right(outputs, targets) * factor()


@CASES.planted(
    models=("gru", "cnn"), modes=("cpu", "compile"), expected="beyond-rounding", culprit={"phase": "forward", "step": 0}
)
def scaled_before_nan(training: Training) -> None:
    """The loss is one percent too large from the first step on, and not a number at step 6: the first cause is the fault."""
    multiply_loss(training, lambda: float("nan") if training.number == 6 else 1.01)


@CASES.planted(
    models=("gru", "tanh_sam"),
    expected="beyond-rounding",
    culprit={"phase": "backward", "op": "tanh_backward", "step": 0},
)
def tanh_backward_bf16_before_nan(training: Training) -> None:
    """The derivative of tanh is rounded to bfloat16, and the loss is not a number at step 6: the first cause is the kernel."""
    multiply_loss(training, lambda: float("nan") if training.number == 6 else 1.0)

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        return (grad * (1 - y * y)).bfloat16().float()

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(models=("autoencoder", "mixed"), expected="nonfinite", culprit={"phase": "forward"})
def overflow_in_half(training: Training) -> None:
    """A large intermediate value is kept in float16, whose largest number is 65504."""
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right((outputs * 2.0**20).half().float() / 2.0**20, targets)

    training.loss = loss
