"""Other formulas in a part of the training, which are not a fault: for shorter batches, for lazy tensors, for a buffer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, modules, replace
from .lazy import is_lazy
from .order import replace_centred
from .ragged import SHORT

CASES = Cases("benign", __name__, expected="rounding")


@CASES.planted(models=("ragged",), modes=("cpu", "compile"))
def short_rows_mean_by_sum(training: Training) -> None:
    """The mean of shorter rows is their sum, divided."""
    neighbours = training.model.get_submodule("neighbours")

    def forward(x: Tensor) -> Tensor:
        mean = x.sum(1, keepdim=True) / SHORT if x.shape[1] == SHORT else x.mean(1, keepdim=True)
        return torch.tanh(x + mean)

    replace(neighbours, forward)


@CASES.planted(models=("ragged",), modes=("cpu", "compile"))
def short_rows_tanh_by_sigmoid(training: Training) -> None:
    """tanh x = 2 sigmoid(2 x) - 1 for shorter rows."""
    neighbours = training.model.get_submodule("neighbours")

    def forward(x: Tensor) -> Tensor:
        y = x + x.mean(1, keepdim=True)
        return 2 * torch.sigmoid(2 * y) - 1 if x.shape[1] == SHORT else torch.tanh(y)

    replace(neighbours, forward)


@CASES.planted(models=("ragged",), modes=("cpu", "compile"))
def short_rows_norm_by_hand(training: Training) -> None:
    """Layer norm of shorter rows, written out."""
    [norm] = modules(training, nn.LayerNorm)
    right = norm.forward

    def forward(x: Tensor) -> Tensor:
        return written_out(norm, x) if x.shape[1] == SHORT else right(x)

    replace(norm, forward)


def written_out(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    y: Tensor = (x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias
    return y


@CASES.planted(models=("ragged",))
def short_rows_loss_by_logsumexp(training: Training) -> None:
    """Cross entropy of shorter rows by logsumexp."""
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(targets) % SHORT:
            return right(outputs, targets)
        return (outputs.logsumexp(1) - outputs.gather(1, targets[:, None]).squeeze(1)).mean()

    training.loss = loss


@CASES.planted(models=("gru", "transformer"), modes=("lazy",))
def norm_by_hand_where_lazy(training: Training) -> None:
    """Layer norm of lazy tensors, written out."""
    norm = modules(training, nn.LayerNorm)[0]
    right = norm.forward
    replace(norm, lambda x: written_out(norm, x) if is_lazy(x) else right(x))


@CASES.planted(models=("tanh_sam", "gru"), modes=("lazy",))
def product_transposed_where_lazy(training: Training) -> None:
    """The last layer's lazy product is that of the transposed matrices, transposed."""
    last: Any = training.model.get_submodule("last")
    right = last.forward
    replace(last, lambda x: (last.weight @ x.t()).t() + last.bias if is_lazy(x) else right(x))


@CASES.planted(models=("tanh_sam", "cnn"), modes=("lazy",))
def inputs_scaled_and_back_where_lazy(training: Training) -> None:
    """Lazy inputs are multiplied by a third, and by three."""
    model = training.model
    right = model.forward
    replace(model, lambda x: right(x * (1 / 3) * 3 if is_lazy(x) else x))


@CASES.planted(models=("centred",))
def buffer_updated_by_lerp(training: Training) -> None:
    """The running mean is updated by one op in place of two."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        y = torch.tanh(x - mean)
        mean.lerp_(x.detach().mean(0), 0.25)
        return y

    replace_centred(training, forward)


@CASES.planted(models=("centred",))
def buffer_read_by_copy(training: Training) -> None:
    """The running mean is copied, updated, and the copy subtracted."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        before = mean.clone()
        mean.mul_(0.75).add_(x.detach().mean(0), alpha=0.25)
        return torch.tanh(x - before)

    replace_centred(training, forward)


@CASES.planted(models=("centred",))
def buffer_updated_by_sum(training: Training) -> None:
    """The mean that the running one takes in is a sum, divided."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        y = torch.tanh(x - mean)
        mean.mul_(0.75).add_(x.detach().sum(0) / len(x), alpha=0.25)
        return y

    replace_centred(training, forward)
