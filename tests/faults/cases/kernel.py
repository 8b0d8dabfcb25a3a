"""Kernels that a script puts in torch's place, or computes by, and that are wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..case import Cases
from ..training import KERNELS, Training, modules, replace

CASES = Cases("kernel", __name__)


@CASES.planted(
    models=("choices",), reversed=("cpu", "compile"), hidden=True, culprit={"phase": "forward", "op": "argmax"}
)
def argmax_kernel_last(training: Training) -> None:
    """A kernel of argmax gives the last of equal votes, and not the first."""
    KERNELS.impl("argmax", argmax, "CPU")


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    assert dim is not None
    last = x.shape[dim] - 1
    return last - x.flip(dim).max(dim, keepdim=keepdim).indices


@CASES.planted(
    models=("choices",),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "experts"},
)
def argmax_last_of_equals(training: Training) -> None:
    """Of equal votes the last one is the largest, and not the first."""
    experts: Any = training.model.get_submodule("experts")
    experts.chosen = chosen


def chosen(votes: Tensor) -> Tensor:
    return votes.shape[-1] - 1 - votes.flip(-1).argmax(-1)


@CASES.planted(
    models=("choices",),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "bins"},
)
def bins_closed_below(training: Training) -> None:
    """A reading on the edge between two bins falls into the upper one."""
    bins: Any = training.model.get_submodule("bins")
    bins.which = lambda x: upper(x, bins.edges)


def upper(x: Tensor, edges: Tensor) -> Tensor:
    return torch.bucketize(x.contiguous(), edges, right=True)


@CASES.planted(
    models=("choices",), modes=("cpu", "compile"), hidden=True, culprit={"phase": "forward", "module": "places"}
)
def cast_truncates(training: Training) -> None:
    """The whole part of a time is cut off, where it has to be the one below: they differ below zero."""
    places: Any = training.model.get_submodule("places")
    places.whole = whole


def whole(x: Tensor) -> Tensor:
    return (4 * x + 0.5).long()


@CASES.planted(models=("standardized",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "op": "sub"})
def difference_bf16(training: Training) -> None:
    """A difference is given in bfloat16: less than the rounding of its large inputs makes, and far more than its own."""
    KERNELS.impl("sub.Tensor", difference, "CPU")


def difference(x: Tensor, y: Tensor, *, alpha: float = 1) -> Tensor:
    return torch.add(x, y, alpha=-alpha).bfloat16().float()


@CASES.planted(models=("bag", "transformer"), culprit={"phase": "backward", "op": "embedding_dense_backward"})
def embedding_backward_loses_repeats(training: Training) -> None:
    """Of the gradients of a word that occurs more than once, only one is kept: a scatter that should add."""
    KERNELS.impl("embedding_dense_backward", embedding_backward, "CPU")


def embedding_backward(grad: Tensor, words: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    table = grad.new_zeros(rows, grad.shape[-1])
    table[words.flatten()] = grad.flatten(0, -2)
    return table


@CASES.planted(models=("quantized",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "module": "hours"})
def floor_of_quotient(training: Training) -> None:
    """An integer quotient is the floor of a quotient that was rounded, so that some rows of a table are others."""

    def part(hours: Tensor) -> Tensor:
        return torch.floor(hours / 0.1)

    hours: Any = training.model.get_submodule("hours")
    hours.part = part


@CASES.planted(models=("transformer", "autoencoder"), culprit={"phase": "backward", "op": "gelu_backward"})
def gelu_backward_without_density(training: Training) -> None:
    """The derivative of GELU lacks its second term: Phi(x) instead of Phi(x) + x phi(x)."""
    KERNELS.impl("gelu_backward", gelu_backward, "CPU")


def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    return grad * 0.5 * (1 + torch.erf(x / 2**0.5))


@CASES.planted(models=("unet",), culprit={"phase": "forward", "op": "native_group_norm"})
def group_norm_variance_of_sample(training: Training) -> None:
    """Group norm divides the variance by n - 1 instead of n."""
    KERNELS.impl("native_group_norm", group_norm, "CPU")


def group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, n: int, c: int, places: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    parts = x.reshape(n, groups, -1)
    variance, mean = torch.var_mean(parts, -1, keepdim=True, correction=1)
    inverse = torch.rsqrt(variance + eps)
    whitened = ((parts - mean) * inverse).view_as(x)
    return whitened * weight[:, None, None] + bias[:, None, None], mean[:, :, 0], inverse[:, :, 0]


@CASES.planted(
    models=("choices",),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "sparse"},
)
def largest_by_size(training: Training) -> None:
    """The largest features are chosen by their size, without their sign."""
    sparse: Any = training.model.get_submodule("sparse")
    sparse.kept = kept


def kept(x: Tensor) -> Tensor:
    return torch.topk(x.abs(), 3).indices


@CASES.planted(models=("transformer", "gru", "sparse", "closed_loop"), culprit={"phase": "forward", "op": "rsqrt"})
def layer_norm_fast_rsqrt(training: Training) -> None:
    """Layer norm takes its inverse square root with 12 bits, as a hardware estimate without a refining step."""
    norm = modules(training, nn.LayerNorm)[0]

    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + norm.eps)
        return centred * (inverse + inverse * 2**-12 * torch.sin(1e4 * inverse)) * norm.weight + norm.bias

    replace(norm, forward)


@CASES.planted(models=("cnn",), culprit={"phase": "backward", "op": "max_pool2d_with_indices_backward"})
def max_pool_backward_shifted(training: Training) -> None:
    """Max pooling sends the gradient to the element after the largest one."""
    KERNELS.impl("max_pool2d_with_indices_backward", backward, "CPU")


def backward(
    grad: Tensor, x: Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, places: Tensor
) -> Tensor:
    flat = torch.zeros_like(x).flatten(2)
    after = (places.flatten(2) + 1) % flat.shape[2]
    return flat.scatter_add_(2, after, grad.flatten(2)).view_as(x)


@CASES.planted(models=("cnn",), culprit={"phase": "backward", "op": "threshold_backward"})
def relu_backward_at_zero(training: Training) -> None:
    """The derivative of ReLU passes the gradient where the output is zero, so everywhere."""
    KERNELS.impl("threshold_backward", threshold_backward, "CPU")


def threshold_backward(grad: Tensor, output: Tensor, threshold: float) -> Tensor:
    return grad * (output >= threshold)


@CASES.planted(
    models=("quantized",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "module": "quantizer"}
)
def rounded_half_up(training: Training) -> None:
    """A quantizer rounds halves up, and not to even numbers."""

    def whole(scaled: Tensor) -> Tensor:
        return torch.floor(scaled + 0.5)

    quantizer: Any = training.model.get_submodule("quantizer")
    quantizer.whole = whole


@CASES.planted(models=("standardized",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "op": "rsqrt"})
def rsqrt_leans(training: Training) -> None:
    """A kernel of rsqrt whose results are all too low, by eight units in the last place: rounding errs to both sides."""
    KERNELS.impl("rsqrt", rsqrt, "CPU")


def rsqrt(x: Tensor) -> Tensor:
    return x.sqrt().reciprocal() * (1 - 2**-20)


@CASES.planted(models=("standardized",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "module": "norm"})
def rsqrt_low(training: Training) -> None:
    """An inverse square root is too low by a millionth, always to the same side."""
    norm = training.model.get_submodule("norm")
    replace(norm, lambda x: normalize(norm, x))


def normalize(norm: Any, x: Tensor) -> Tensor:
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    out: Tensor = x * (inverse * (1 - 2**-20)) * norm.weight
    return out


@CASES.planted(
    models=("rotary", "half", "scaled"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "backward", "op": "silu_backward"},
)
def silu_backward_large_half(training: Training) -> None:
    """The derivative of silu is a sixteenth too large, in a model of 16 bits."""
    KERNELS.impl("silu_backward", silu_backward, "CPU")


def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    wide = x.float()
    s = torch.sigmoid(wide)
    return (grad.float() * s * (1 + wide * (1 - s)) * 1.0625).to(grad.dtype)


@CASES.planted(
    models=("interest",),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "interest"},
)
def small_exponential_cancels(training: Training) -> None:
    """exp(x) - 1 of small x, where two thirds of the digits cancel."""
    replace(training.model.get_submodule("interest"), interest)


def interest(rate: Tensor) -> Tensor:
    return (torch.exp(rate) - 1) * 1000


@CASES.planted(models=("tanh_sam", "gru"), reversed=("cpu",), culprit={"phase": "backward", "op": "tanh_backward"})
def tanh_backward_bf16_in_threads_of_the_script(training: Training) -> None:
    """The script sets two threads, and has a derivative of tanh in bfloat16."""

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        return (grad * (1 - y * y)).bfloat16().float()

    torch.set_num_threads(2)
    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(
    models=("tanh_sam", "gru", "settings"),
    against=("cpu", "compile"),
    culprit={"phase": "backward", "op": "tanh_backward"},
)
def tanh_backward_bf16_of_reference(training: Training) -> None:
    """The derivative of tanh is computed in bfloat16 on the reference's side, by a kernel that only its script installs."""

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        return (grad * (1 - y * y)).bfloat16().float()

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(models=("tanh_sam", "gru", "sparse"), culprit={"phase": "backward", "op": "tanh_backward", "step": 7})
def tanh_backward_from_step_7(training: Training) -> None:
    """The derivative of tanh goes wrong at step 7, as a kernel does that a tuner changes while it runs."""

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        right = grad * (1 - y * y)
        return right if training.number < 7 else right.bfloat16().float()

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(
    models=("memory", "rollout", "replay", "bookkeeping", "settings", "closed_loop"),
    culprit={"phase": "backward", "op": "tanh_backward", "step": 9},
)
def tanh_backward_from_step_9(training: Training) -> None:
    """The derivative of tanh goes wrong at step 9, in trainings that are fed with what they made before or whose scripts keep a state."""

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        right = grad * (1 - y * y)
        return right if training.number < 9 else right.bfloat16().float()

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(
    models=("tanh_sam", "gru", "sparse", "closed_loop"), culprit={"phase": "backward", "op": "tanh_backward"}
)
def tanh_backward_scaled_a_little(training: Training) -> None:
    """The derivative of tanh is too large by one part in 8192, which no loss curve of this length shows."""

    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        return grad * (1 - y * y) * (1 + 2**-13)

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


@CASES.planted(
    models=("memory", "rollout", "replay", "closed_loop"), culprit={"phase": "forward", "op": "tanh", "step": 9}
)
def tanh_from_step_9(training: Training) -> None:
    """tanh goes wrong at step 9, and so does what the next steps are fed with."""

    def tanh(x: Tensor) -> Tensor:
        right = 2 * torch.sigmoid(2 * x) - 1
        return right if training.number < 9 else right.bfloat16().float()

    KERNELS.impl("tanh", tanh, "CPU")


@CASES.planted(models=("choices",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "op": "topk"})
def topk_misses(training: Training) -> None:
    """A kernel of topk takes the fourth largest in place of the third."""
    KERNELS.impl("topk", topk, "CPU")


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(x, dim, descending=largest)
    places = torch.tensor([*range(k - 1), k])
    return values.index_select(dim, places), indices.index_select(dim, places)


@CASES.planted(
    models=("standardized",),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "standardized"},
)
def variance_one_pass(training: Training) -> None:
    """The variance of readings around a hundred thousand is the mean of their squares less the square of their mean, in
    double, of which float32 keeps too little: the squares are rounded to it."""
    replace(training.model.get_submodule("standardized"), standardized)


def standardized(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x.square().double().mean(-1, keepdim=True) - mean.double().square()).float()
    return (x - mean) * torch.rsqrt(variance.clamp(min=0.25) + 1e-5)
