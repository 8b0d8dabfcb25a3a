"""Other ops, other layouts in memory and other settings of torch, for the same formulas: none of it is a fault."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..case import Cases
from ..training import KERNELS, Training, modules, replace

CASES = Cases("benign", __name__, expected="rounding")


@CASES.planted(models=("transformer", "autoencoder", "unet"))
def adam_fused(training: Training) -> None:
    """Adam in one fused kernel."""
    training.optimizer.param_groups[0]["fused"] = True


@CASES.planted(models=("autoencoder",))
def adam_tensor_by_tensor(training: Training) -> None:
    """Adam without its list kernels."""
    training.optimizer.param_groups[0]["foreach"] = False


@CASES.planted(models=("tanh_sam", "cnn", "autoencoder"))
def batches_off_boundary(training: Training) -> None:
    """Batches begin 4 bytes off a boundary of 64, as parts of larger tensors do."""
    training.batches = [[(shifted(x), y) for x, y in parts] for parts in training.batches]


def shifted(x: Tensor) -> Tensor:
    return torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape)


@CASES.planted(models=("cnn", "unet"))
def channels_last(training: Training) -> None:
    """Convolutions in the channels-last layout."""
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    training.batches = [[(last(x), y) for x, y in parts] for parts in training.batches]


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@CASES.planted(models=("cnn",), modes=("compile",))
def channels_last_compiled(training: Training) -> None:
    """Convolutions in the channels-last layout, compiled."""
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@CASES.planted(models=("cnn",))
def convolution_by_product(training: Training) -> None:
    """Convolution as unfold and a matrix product."""
    for conv in modules(training, nn.Conv2d):
        replace(conv, functools.partial(convolve, conv))


def convolve(conv: nn.Conv2d, x: Tensor) -> Tensor:
    assert conv.bias is not None
    columns = F.unfold(x, 3, padding=1)  # [B, C * 9, H * W]
    out = conv.weight.flatten(1) @ columns + conv.bias[:, None]
    return out.view(len(x), -1, *x.shape[2:])


@CASES.planted(models=("bag", "cnn", "unet"), expected="identical")
def deterministic_algorithms(training: Training) -> None:
    """torch is asked for deterministic algorithms, which it uses already."""
    torch.use_deterministic_algorithms(True)


@CASES.planted(models=("bag", "transformer"))
def embedding_by_product(training: Training) -> None:
    """The embedding as a product of one-hot rows with its table."""
    words = modules(training, nn.Embedding)[0]
    replace(words, lambda x: F.one_hot(x, words.num_embeddings).float() @ words.weight)


@CASES.planted(models=("transformer",))
def fused_attention(training: Training) -> None:
    """torch's scaled_dot_product_attention instead of its formula."""
    for block in range(2):
        core = training.model.get_submodule(f"blocks.{block}.attention.core")
        replace(core, functools.partial(F.scaled_dot_product_attention, is_causal=True))


@CASES.planted(models=("own_kernels",), expected="identical")
def inputs_relaid(training: Training) -> None:
    """An elementwise op takes its inputs transposed, and they are laid back after it: no bit can change."""
    first = training.model.get_submodule("first")
    forward: Any = first.forward
    replace(first, lambda x: forward(there_and_back(x)))


def there_and_back(x: Tensor) -> Tensor:
    transposed = x.transpose(1, 2).contiguous().transpose(1, 2)
    return transposed.neg().contiguous().neg()


@CASES.planted(models=("autoencoder", "tanh_sam"))
def linear_by_einsum(training: Training) -> None:
    """Linear layers as einsum and an addition."""
    for linear in modules(training, nn.Linear):
        replace(linear, functools.partial(multiply, linear))


def multiply(linear: nn.Linear, x: Tensor) -> Tensor:
    return torch.einsum("...i,oi->...o", x, linear.weight) + linear.bias


@CASES.planted(models=("own_kernels",))
def logits_transposed(training: Training) -> None:
    """What a log_softmax takes lies transposed, and its kernel, which both sides have, adds up from the other end then."""
    replace(training.model.get_submodule("logits"), lambda logits: logits.t().contiguous().t())


@CASES.planted(models=("autoencoder", "standardized"))
def loss_of_transposed(training: Training) -> None:
    """The mean of a loss is taken over elements that lie transposed."""
    training.loss = lambda predicted, target: F.mse_loss(transposed(predicted), transposed(target))


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


@CASES.planted(models=("rotary", "standardized"), modes=("cpu", "compile"))
def norm_by_kernel(training: Training) -> None:
    """The root mean square norms of a model in bfloat16 by torch's own op."""
    for norm in training.model.modules():
        if type(norm).__name__ == "RootMeanSquareNorm":
            replace(norm, by_kernel(norm))


def by_kernel(norm: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        out: Tensor = F.rms_norm(x.float(), x.shape[-1:], eps=1e-5).to(x.dtype) * norm.weight
        return out

    return forward


@CASES.planted(
    models=(
        "tanh_sam",
        "transformer",
        "cnn",
        "gru",
        "autoencoder",
        "mixed",
        "bag",
        "unet",
        "memory",
        "bookkeeping",
        "settings",
        "sparse",
        "closed_loop",
        "ragged",
        "centred",
    ),
    expected="identical",
)
def nothing(training: Training) -> None:
    """Nothing is changed: the training repeats itself."""


@CASES.planted(models=("autoencoder", "transformer"), expected="identical")
def recomputed(training: Training) -> None:
    """Activations are computed again in the backward instead of kept."""
    act = modules(training, nn.GELU)[0]
    right = act.forward
    replace(act, lambda x: checkpoint(right, x, use_reentrant=False))


@CASES.planted(
    models=("tanh_sam", "cnn", "unet"),  # an embedding's gradient is added in any order by compiled threads
    modes=("cpu", "compile"),
    reversed=("cpu",),
)
def threads_of_the_script(training: Training) -> None:
    """The script sets the number of threads itself."""
    torch.set_num_threads(2)


@CASES.planted(models=("unet",))
def transposed_convolution_by_product(training: Training) -> None:
    """A transposed convolution whose windows do not overlap, as a product."""
    up = modules(training, nn.ConvTranspose2d)[0]

    def forward(x: Tensor) -> Tensor:
        assert up.bias is not None
        b, _, h, w = x.shape
        spread = torch.einsum("bchw,cdij->bdhiwj", x, up.weight)
        return spread.reshape(b, -1, 2 * h, 2 * w) + up.bias[:, None, None]

    replace(up, forward)


@CASES.planted(models=("tanh_sam", "autoencoder", "gru"))
def weights_by_columns(training: Training) -> None:
    """The parameters of linear layers lie column by column in memory."""
    for linear in modules(training, nn.Linear):
        linear.weight.data = linear.weight.data.t().contiguous().t()


@CASES.planted(models=("tanh_sam", "autoencoder", "bag"), modes=("cpu", "compile"))
def weights_transposed(training: Training) -> None:
    """Weights of linear layers are transposed into memory of their own before the product."""
    for linear in modules(training, nn.Linear):
        replace(linear, lambda x, linear=linear: torch.addmm(linear.bias, x, linear.weight.t().contiguous()))


@CASES.planted(models=("cnn", "unet"))
def without_mkldnn(training: Training) -> None:
    """Convolutions by torch's own code instead of oneDNN."""
    torch.backends.mkldnn.set_flags(False)


@CASES.planted(models=("cnn", "bag", "transformer", "unet"), expected="identical")
def zeros_instead_of_none(training: Training) -> None:
    """Gradients are set to zero instead of none."""
    training.optimizer.zero_grad = functools.partial(training.optimizer.zero_grad, set_to_none=False)  # type: ignore[method-assign]


@CASES.planted(models=("bag", "transformer"))
def order_of_sums(training: Training) -> None:
    """The gradients of a word are added in an order that differs from run to run, as by atomic additions: only bits, but never the same."""
    KERNELS.impl("embedding_dense_backward", embedding_backward, "CPU")


def embedding_backward(grad: Tensor, words: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    order = list(range(words.numel()))
    random.SystemRandom().shuffle(order)
    table = grad.new_zeros(rows, grad.shape[-1])
    return table.index_add_(0, words.flatten()[order], grad.flatten(0, -2)[order])
