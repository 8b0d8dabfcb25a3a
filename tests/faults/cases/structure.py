"""Models that lack a part, have one too many, or connect them otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, modules, parameter, replace

CASES = Cases("structure", __name__)


@CASES.planted(
    models=("rotary",),
    modes=("cpu",),  # Inductor leaves out such a rounding
    reversed=("cpu", "compile"),
    hidden=True,
    culprit={"phase": "forward", "module": "attention.rotary"},
)
def angles_rounded(training: Training) -> None:
    """The angles of a rotary embedding are rounded to bfloat16, as they are where a model is moved as a whole."""
    rotary: Any = training.model.get_submodule("attention.rotary")
    exact: Callable[..., Tensor] = rotary.angles

    def angles(*given: object) -> Tensor:
        return exact(*given).bfloat16().float()

    rotary.angles = angles


@CASES.planted(models=("transformer",), culprit={"phase": "forward", "module": "blocks.1.attention.core", "op": "div"})
def attention_without_scale(training: Training) -> None:
    """The division by the square root of the width is missing from the second block's attention."""
    core = training.model.get_submodule("blocks.1.attention.core")
    mask = core.get_buffer("causal")

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf")).softmax(-1) @ v

    replace(core, forward)


@CASES.planted(models=("cnn",), culprit={"phase": "forward", "module": "norm2"})
def batch_norm_in_evaluation(training: Training) -> None:
    """One batch norm is left in evaluation mode: it normalizes by its running statistics."""
    modules(training, nn.BatchNorm2d)[1].eval()


@CASES.planted(models=("tanh_sam", "cnn", "autoencoder", "unet"), culprit={"phase": "backward"})
def bias_gradient_missing(training: Training) -> None:
    """The last bias gets a gradient of zero, as from a fused layer that forgets to sum it."""
    # That of a convolution before a batch norm would not do: its gradient is nothing but rounding.
    list(training.model.parameters())[-1].register_hook(torch.zeros_like)


@CASES.planted(
    models=("half", "scaled"), modes=("cpu", "compile"), hidden=True, culprit={"phase": "forward", "module": "branch1"}
)
def branch_scaled_half(training: Training) -> None:
    """A branch of a residual network of 16 bits is a twentieth larger."""
    branch: Any = training.model.get_submodule("branch1")

    def forward(x: Tensor) -> Tensor:
        out: Tensor = branch.narrow(branch.act(branch.wide(x))) * 1.05
        return out

    replace(branch, forward)


@CASES.planted(models=("casts",), reversed=("cpu",), hidden=True, culprit={"phase": "forward", "module": "narrow"})
def cast_missing(training: Training) -> None:
    """Hidden values are not rounded to bfloat16, as the script has it."""
    replace(training.model.get_submodule("narrow"), lambda x: x)


@CASES.planted(
    models=("choices",), modes=("cpu", "compile"), hidden=True, culprit={"phase": "forward", "module": "sparse"}
)
def chosen_in_bf16(training: Training) -> None:
    """The largest features are chosen by values that are rounded to bfloat16, as a router in a model of 16 bits does."""
    sparse: Any = training.model.get_submodule("sparse")
    sparse.kept = kept


def kept(x: Tensor) -> Tensor:
    return torch.topk(x.bfloat16(), 3).indices


@CASES.planted(
    models=("unet",), modes=("cpu", "compile", "lazy"), culprit={"phase": "forward", "module": "block1.depthwise"}
)
def depthwise_kernel_flipped(training: Training) -> None:
    """A depthwise convolution turns its kernel around, as the textbooks' convolution does."""
    conv = training.model.get_submodule("block1.depthwise")
    weight, bias = conv.get_parameter("weight"), conv.get_parameter("bias")

    def forward(x: Tensor) -> Tensor:
        return F.conv2d(x, weight.flip((2, 3)), bias, padding=1, groups=len(weight))

    replace(conv, forward)


@CASES.planted(models=("transformer",), culprit={"phase": "backward", "module": "blocks.0"})
def detached_branch(training: Training) -> None:
    """A branch of the first block is detached: forward is right, and half of the gradient is gone."""
    attention = training.model.get_submodule("blocks.0.attention")
    right = attention.forward
    replace(attention, lambda x: right(x.detach()))


@CASES.planted(models=("gru",), culprit={"phase": "backward", "module": "cell"})
def detached_state(training: Training) -> None:
    """The recurrent state is detached at each time: what was learnt of the past is only the last word."""
    cell = training.model.get_submodule("cell")
    right = cell.forward
    replace(cell, lambda x, h: right(x, h.detach()))


@CASES.planted(models=("autoencoder",), expected="different-setup", culprit={"phase": "forward", "module": "drop"})
def dropout_missing(training: Training) -> None:
    """The model trains in evaluation mode: nothing is dropped and nothing is drawn."""
    training.model.eval()


@CASES.planted(models=("bag",), culprit={"phase": "backward", "module": "words"})
def frozen_embedding(training: Training) -> None:
    """The embedding is frozen: it has no gradient at all."""
    parameter(training, "words.weight").requires_grad_(False)


@CASES.planted(models=("gru", "autoencoder"), culprit={"phase": "backward"})
def gradient_doubled(training: Training) -> None:
    """One weight's gradient counts twice. Adam divides it by its own size again, so the loss does not show it."""
    next(p for p in training.model.parameters() if p.dim() == 2).register_hook(lambda gradient: 2 * gradient)


@CASES.planted(models=("gru", "cnn"), modes=("compile",), culprit={"phase": "backward"})
def gradient_halved_compiled(training: Training) -> None:
    """One weight's gradient is halved, in a training that is compiled otherwise as it should be."""
    next(p for p in training.model.parameters() if p.dim() == 2).register_hook(lambda gradient: gradient / 2)


@CASES.planted(
    models=("casts",),
    modes=("cpu", "compile,emulate_casts=on"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "quarters"},
)
def grid_missing(training: Training) -> None:
    """Hidden values are not rounded to quarters, as the script has it, in a training whose casts the compiler keeps."""
    replace(training.model.get_submodule("quarters"), lambda x: x)


@CASES.planted(models=("tanh_sam", "gru"), modes=("compile",), culprit={"phase": "forward"})
def hidden_scaled_compiled(training: Training) -> None:
    """What a layer gives is scaled by 1.01, in a training that is compiled: the compiler has no part in it."""
    last = modules(training, nn.Linear)[-1]

    def forward(x: Tensor) -> Tensor:
        return nn.functional.linear(x, last.weight, last.bias) * 1.01

    replace(last, forward)


@CASES.planted(
    models=("contrast",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "log_probabilities"}
)
def log_softmax_in_double(training: Training) -> None:
    """The logarithm of a softmax is computed in double, where float32 gives zero: the reference's loss lacks what is below
    its digits, and the mode is the one that is closer."""
    (one,) = modules(training, nn.LogSoftmax)
    replace(one, lambda x: x.double().log_softmax(-1).float())


@CASES.planted(models=("tanh_sam",), culprit={"phase": "forward"})
def loss_broadcasts(training: Training) -> None:
    """Targets of shape [N] against outputs of shape [N, 1]: the loss is taken over all N x N pairs."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets.squeeze(1)).square().mean()

    training.loss = loss


@CASES.planted(
    models=("rotary", "half", "scaled", "mixed"),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"op": "mul"},
)
def loss_factor(training: Training) -> None:
    """The loss is a hundredth larger, in a model of 16 bits."""
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        return plain(prediction, targets) * 1.01

    training.loss = loss


@CASES.planted(
    models=("rotary", "half", "scaled"),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "norm1"},
)
def norm_centred(training: Training) -> None:
    """A root mean square norm subtracts the mean, as a layer norm does, in a model that is bfloat16 throughout."""
    norm = training.model.get_submodule("norm1")
    replace(norm, lambda x: centred(norm, x))


def centred(norm: Any, x: Tensor) -> Tensor:
    wide = x.float()
    wide = wide - wide.mean(-1, keepdim=True)
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
    out: Tensor = scaled.to(x.dtype) * norm.weight
    return out


@CASES.planted(models=("transformer",), culprit={"phase": "forward", "module": "blocks.1.norm2"})
def norm_skipped(training: Training) -> None:
    """The second block's feed-forward part reads the values before the layer norm."""
    norm = training.model.get_submodule("blocks.1.norm2")
    replace(norm, lambda x: x)


@CASES.planted(
    models=("choices",),
    modes=("cpu", "compile", "lazy"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "places"},
)
def places_one_on(training: Training) -> None:
    """The row of a time is the one behind: a whole number that is one too large."""
    places: Any = training.model.get_submodule("places")
    places.whole = whole


def whole(x: Tensor) -> Tensor:
    return torch.floor(4 * x).long() + 1


@CASES.planted(models=("transformer",), expected="different-setup")
def places_shifted(training: Training) -> None:
    """The embedding of the places is off by one place."""
    order = training.model.get_buffer("order")
    order.copy_(order.roll(1))


@CASES.planted(models=("cnn", "tanh_sam"), culprit={"phase": "forward"})
def regularizer_added(training: Training) -> None:
    """A penalty on one weight is added to the loss."""
    right, weight = training.loss, parameter(training, "last.weight")
    training.loss = lambda outputs, targets: right(outputs, targets) + 1e-4 * weight.square().sum()


@CASES.planted(models=("gru",), culprit={"phase": "forward", "module": "cell.candidate"})
def reset_gate_before_product(training: Training) -> None:
    """The reset gate is applied to the state before the product instead of after, without its bias: another GRU."""
    replace(training.model.get_submodule("cell.candidate"), candidate)


def candidate(w: Tensor, u: Tensor, r: Tensor) -> Tensor:
    return torch.tanh(r * (w + u))


@CASES.planted(
    models=("rotary",),
    modes=("cpu", "compile"),
    hidden=True,
    culprit={"phase": "forward", "module": "attention.rotary"},
)
def rotation_rounded(training: Training) -> None:
    """The sines and cosines of a rotary embedding are rounded to bfloat16 before they are multiplied."""
    rotary: Any = training.model.get_submodule("attention.rotary")

    def forward(x: Tensor) -> Tensor:
        angles = rotary.angles(x.device)
        cosine, sine = angles.cos().bfloat16().float(), angles.sin().bfloat16().float()
        left, right = x.float().chunk(2, -1)
        return torch.cat((left * cosine - right * sine, left * sine + right * cosine), -1).to(x.dtype)

    replace(rotary, forward)


@CASES.planted(models=("cnn",), culprit={"phase": "forward", "module": "norm1"})
def running_statistics_forgotten(training: Training) -> None:
    """A batch norm does not move its running statistics; the training goes on unharmed, the evaluation will not."""
    norm = modules(training, nn.BatchNorm2d)[0]

    def forward(x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)

    replace(norm, forward)


@CASES.planted(models=("unet",), culprit={"phase": "backward", "module": "gate"})
def similarity_without_gradient(training: Training) -> None:
    """The weights of the gate are detached: the pictures that it compares with learn nothing."""
    gate = training.model.get_submodule("gate")
    pictures, mix = gate.get_parameter("pictures"), gate.get_parameter("mix")

    def forward(x: Tensor) -> Tensor:
        alike = torch.sigmoid(F.cosine_similarity(x.flatten(2), pictures, dim=2)).detach()
        return x + torch.einsum("bchw,bc,cd->bdhw", x, alike, mix)

    replace(gate, forward)


@CASES.planted(
    models=("transformer",), culprit={"phase": "forward", "module": "blocks.0.attention.core", "op": "_softmax"}
)
def softmax_over_wrong_axis(training: Training) -> None:
    """Attention weights sum to one over the queries instead of the keys."""
    core = training.model.get_submodule("blocks.0.attention.core")
    mask = core.get_buffer("causal")

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        out: Tensor = scores.masked_fill(~mask, float("-inf")).softmax(-2) @ v
        return out

    replace(core, forward)


@CASES.planted(models=("cnn", "gru", "sparse"), culprit={"phase": "forward"})
def softmax_twice(training: Training) -> None:
    """The outputs are normalized before a loss that normalizes them again."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.softmax(-1), targets)

    training.loss = loss


@CASES.planted(models=("unet",), culprit={"phase": "forward", "module": "up"})
def upsampled_one_off(training: Training) -> None:
    """The transposed convolution's output lies one place too far right, as where padding is split the other way."""
    up = training.model.get_submodule("up")
    right = up.forward
    replace(up, lambda x: right(x).roll(1, 3))
