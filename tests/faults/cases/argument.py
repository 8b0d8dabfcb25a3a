"""An argument of a call is another one: an epsilon, a slope, a scale, a margin."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ..case import Cases
from ..training import Training, modules, replace

CASES = Cases("argument", __name__)


@CASES.planted(models=("transformer",), culprit={"phase": "forward", "module": "blocks.1.attention.core"})
def attention_scale(training: Training) -> None:
    """One block divides by the square root of 9 instead of the heads' width 8."""
    core = training.model.get_submodule("blocks.1.attention.core")
    right = core.forward

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = right(q * (8 / 9) ** 0.5, k, v)
        return out

    replace(core, forward)


@CASES.planted(models=("mixed",), culprit={"op": "_foreach_lerp_"})
def average_decay(training: Training) -> None:
    """The moving average of the weights forgets with 0.99 instead of 0.9."""
    training.averaged = AveragedModel(training.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))


@CASES.planted(models=("cnn",), culprit={"phase": "forward", "op": "native_batch_norm"})
def batch_norm_eps(training: Training) -> None:
    """A batch norm has TensorFlow's eps, 1e-3, instead of 1e-5."""
    modules(training, nn.BatchNorm2d)[1].eps = 1e-3


@CASES.planted(models=("cnn",), culprit={"phase": "forward", "op": "native_batch_norm"})
def batch_norm_momentum(training: Training) -> None:
    """The running statistics move by 0.11 instead of 0.1; neither a loss nor a gradient of the training shows it."""
    modules(training, nn.BatchNorm2d)[0].momentum = 0.11


@CASES.planted(models=("transformer",), expected="different-setup")
def causal_mask_looks_ahead(training: Training) -> None:
    """The causal mask lets each place see the next one: the model reads what it should predict."""
    core = training.model.get_submodule("blocks.0.attention.core")
    mask = core.get_buffer("causal")
    mask.copy_(torch.ones(mask.shape, dtype=torch.bool).tril(1))


@CASES.planted(models=("transformer", "unet"), culprit={"phase": "optimizer"})
def clip_norm(training: Training) -> None:
    """Gradients are clipped to nine tenths of the norm."""
    assert training.clip is not None
    training.clip *= 0.9


@CASES.planted(models=("transformer",), modes=("cpu", "lazy"), culprit={"phase": "forward", "op": "div", "sites": 2})
def divisor_everywhere(training: Training) -> None:
    """Every block divides by the square root of 9 instead of the heads' width 8."""
    for name in ("blocks.0.attention.core", "blocks.1.attention.core"):
        core: Any = training.model.get_submodule(name)

        def forward(q: Tensor, k: Tensor, v: Tensor, causal: Tensor = core.causal) -> Tensor:
            scores = q @ k.transpose(-2, -1) / 9**0.5
            heads: Tensor = scores.masked_fill(~causal, float("-inf")).softmax(-1) @ v
            return heads

        replace(core, forward)


@CASES.planted(models=("autoencoder",), culprit={"phase": "forward", "module": "drop"})
def dropout_probability(training: Training) -> None:
    """Dropout drops 0.12 instead of 0.1; it draws the same numbers."""
    modules(training, nn.Dropout)[0].p = 0.12


@CASES.planted(models=("formulas",), modes=("cpu", "compile", "lazy"), culprit={"module": "elu"})
def elu_alpha(training: Training) -> None:
    """An ELU has another scale, which its forward and its backward take."""
    elu: Any = training.model.get_submodule("elu")
    elu.alpha = 1.001


@CASES.planted(
    models=("fused",),
    modes=("cpu", "compile"),
    culprit={"phase": "forward", "op": "mul", "module": "blocks.0.scaled", "sites": 2},
)
def factor_of_own_function(training: Training) -> None:
    """A function with a backward of its own has another factor, in its forward and in its backward."""
    scaled: Any = training.model.get_submodule("blocks.0.scaled")
    scaled.factor = 0.76


@CASES.planted(models=("rotary",), hidden=True, culprit={"phase": "forward", "module": "attention"})
def fused_attention_scale(training: Training) -> None:
    """Fused attention is given another scale: its forward and its backward take it."""
    attention: Any = training.model.get_submodule("attention")

    def forward(x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = attention.qkv(x).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(attention.rotary(q), attention.rotary(k), v, is_causal=True, scale=0.26)
        out: Tensor = attention.out(heads.transpose(1, 2).reshape(b, t, d))
        return out

    replace(attention, forward)


@CASES.planted(
    models=("fused",), culprit={"phase": "forward", "op": "_scaled_dot_product_flash_attention_for_cpu", "sites": 2}
)
def fused_scale_everywhere(training: Training) -> None:
    """All attentions have another scale, in the forward and the backward of each."""
    for name in ("blocks.0.attention", "blocks.1.attention"):
        attention: Any = training.model.get_submodule(name)
        attention.scale = 0.3535


@CASES.planted(
    models=("fused",),
    modes=("cpu", "compile"),
    culprit={"phase": "forward", "module": "blocks.1.attention", "sites": 1},
)
def fused_scale_of_one(training: Training) -> None:
    """The attention of the second block has another scale: its forward and its backward are told so."""
    attention: Any = training.model.get_submodule("blocks.1.attention")
    attention.scale = 0.3535


@CASES.planted(models=("transformer", "autoencoder"), culprit={"phase": "forward", "op": "gelu"})
def gelu_tanh(training: Training) -> None:
    """GELU is approximated by tanh in one of the two."""
    modules(training, nn.GELU)[0].approximate = "tanh"


@CASES.planted(models=("transformer",), modes=("cpu", "lazy"), culprit={"phase": "forward", "op": "gelu", "sites": 2})
def gelu_tanh_everywhere(training: Training) -> None:
    """GELU is approximated by tanh in every block, in its forward and its backward."""
    for act in modules(training, nn.GELU):
        act.approximate = "tanh"


@CASES.planted(
    models=("unet",), modes=("cpu", "compile", "lazy"), culprit={"phase": "forward", "module": "block2.norm"}
)
def group_norm_groups(training: Training) -> None:
    """Group norm takes the channels in 4 groups instead of 2."""
    modules(training, nn.GroupNorm)[1].num_groups = 4


@CASES.planted(models=("unet",), culprit={"phase": "forward", "op": "huber_loss"})
def huber_delta(training: Training) -> None:
    """The Huber loss goes on as a line from 0.6 instead of 0.5."""
    training.loss = functools.partial(F.huber_loss, delta=0.6)


@CASES.planted(models=("cnn", "gru", "sparse"), culprit={"phase": "forward"})
def label_smoothing(training: Training) -> None:
    """The loss smooths its labels by 0.01."""
    training.loss = functools.partial(F.cross_entropy, label_smoothing=0.01)


@CASES.planted(
    models=("transformer", "gru"),
    modes=("cpu", "compile", "lazy"),
    culprit={"phase": "forward", "op": "native_layer_norm"},
)
def layer_norm_eps(training: Training) -> None:
    """A layer norm was ported with eps 1e-3 instead of 1e-5."""
    modules(training, nn.LayerNorm)[0].eps = 1e-3


@CASES.planted(
    models=("transformer",), modes=("cpu", "lazy"), culprit={"phase": "forward", "op": "native_layer_norm", "sites": 5}
)
def layer_norm_eps_everywhere(training: Training) -> None:
    """All five layer norms were ported with eps 1e-3 instead of 1e-5."""
    for norm in modules(training, nn.LayerNorm):
        norm.eps = 1e-3


@CASES.planted(
    models=("transformer", "gru", "sparse", "closed_loop"), culprit={"phase": "forward", "op": "native_layer_norm"}
)
def layer_norm_eps_small(training: Training) -> None:
    """A layer norm with eps 1e-6 instead of 1e-5, as other frameworks have it: no loss curve shows it."""
    modules(training, nn.LayerNorm)[0].eps = 1e-6


@CASES.planted(models=("formulas",), modes=("cpu", "compile", "lazy"), reversed=("cpu",), culprit={"module": "leaky"})
def leaky_slope(training: Training) -> None:
    """A leaky ReLU has another slope, which its forward and its backward take."""
    leaky: Any = training.model.get_submodule("leaky")
    leaky.negative_slope = 0.011


@CASES.planted(models=("bag", "autoencoder", "unet"), culprit={"phase": "forward"})
def loss_summed(training: Training) -> None:
    """The loss is the sum over the batch instead of the mean; RMSprop and Adam hide it from the curve's shape."""
    right = training.loss
    training.loss = functools.partial(right, reduction="sum")  # type: ignore[call-arg]


@CASES.planted(models=("tanh_sam", "gru", "cnn"), modes=("cpu", "compile", "lazy"), culprit={"phase": "forward"})
def mean_over_one_less(training: Training) -> None:
    """The loss is averaged over one sample less than there are, as a mean that takes its count from elsewhere."""
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right(outputs, targets) * len(targets) / (len(targets) - 1)

    training.loss = loss


@CASES.planted(models=("cnn",), culprit={"phase": "forward", "module": "conv1"})
def padding_mode(training: Training) -> None:
    """A convolution pads by reflection instead of zeros."""
    conv = modules(training, nn.Conv2d)[0]

    def forward(x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), conv.weight, conv.bias)

    replace(conv, forward)


@CASES.planted(models=("bag", "transformer"), culprit={"phase": "backward", "op": "embedding_dense_backward"})
def padding_word(training: Training) -> None:
    """The embedding takes word 0 for padding, so it never learns it."""
    modules(training, nn.Embedding)[0].padding_idx = 0


@CASES.planted(
    models=("rotary", "half", "scaled"),
    modes=("cpu", "compile"),
    reversed=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "norm2", "op": "add"},
)
def root_mean_square_eps(training: Training) -> None:
    """A root mean square norm in a model of 16 bits adds 0.001 to the mean of the squares, and not 0.00001."""
    norm = training.model.get_submodule("norm2")
    replace(norm, lambda x: normalized(norm, x))


def normalized(norm: Any, x: Tensor) -> Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-3)
    out: Tensor = scaled.to(x.dtype) * norm.weight
    return out


@CASES.planted(
    models=("rotary",),
    modes=("cpu", "compile"),
    reversed=("cpu", "compile"),
    hidden=True,
    culprit={"phase": "forward", "module": "attention.rotary"},
)
def rotary_base(training: Training) -> None:
    """The angles of a rotary embedding fall by another base: 101, not 100."""
    rotary: Any = training.model.get_submodule("attention.rotary")

    def angles(device: torch.device) -> Tensor:
        frequencies = 101.0 ** (-torch.arange(8, device=device) / 8)
        return torch.outer(torch.arange(16, device=device).float(), frequencies)

    rotary.angles = angles


@CASES.planted(models=("fused",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "blocks.1.act"})
def slope_beside_rewrites(training: Training) -> None:
    """One slope is another one by a thousandth, beside norms that are written by hand: these make as much of the drift of
    many values, and are right."""
    modules(training, nn.LeakyReLU)[1].negative_slope = 0.1001
    for norm in modules(training, nn.LayerNorm):

        def forward(x: Tensor, norm: nn.LayerNorm = norm) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + norm.eps) * norm.weight + norm.bias

        replace(norm, forward)


@CASES.planted(
    models=("fused",), modes=("cpu", "compile"), culprit={"phase": "forward", "op": "leaky_relu", "sites": 2}
)
def slope_everywhere(training: Training) -> None:
    """The leaky ReLUs of both blocks have another slope, and so have their backwards."""
    for act in modules(training, nn.LeakyReLU):
        act.negative_slope = 0.11
