"""Formulas written in another way: a training rounds otherwise, and is not wrong."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import optimizers
from ..case import Cases
from ..training import Training, modules, replace

CASES = Cases("benign", __name__, expected="rounding")


@CASES.planted(models=("gru",))
def adamw_reordered(training: Training) -> None:
    """AdamW with its corrections folded into the step size and the moments by lerp, as torch does it."""
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


class AdamW(optimizers.AdamW):
    def moments(self, p: Tensor, gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
        if "exp_avg" not in self.state[p]:
            return super().moments(p, gradient, beta1, beta2)
        first, second = self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]
        return first.lerp_(gradient, 1 - beta1), second.lerp_(gradient * gradient, 1 - beta2)

    def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        steps = self.state[p]["step"]
        root = (1 - beta2**steps) ** 0.5
        direction: Tensor = first * (root / (1 - beta1**steps)) / (second.sqrt() + group["eps"] * root)
        return direction


@CASES.planted(models=("transformer",))
def attention_scaled_before(training: Training) -> None:
    """Attention scales the queries, by a factor, before the product."""
    for block in range(2):
        core = training.model.get_submodule(f"blocks.{block}.attention.core")
        replace(core, functools.partial(attend, core.get_buffer("causal")))


def attend(mask: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    out: Tensor = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
    return out


@CASES.planted(models=("rotary",), modes=("cpu", "compile"))
def attention_written_out(training: Training) -> None:
    """Attention in bfloat16 by its products and a softmax, in place of the fused op."""
    attention: Any = training.model.get_submodule("attention")

    def forward(x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = attention.qkv(x).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        scores = attention.rotary(q) @ attention.rotary(k).transpose(-2, -1) / (d // 4) ** 0.5
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        heads = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        out: Tensor = attention.out(heads.transpose(1, 2).reshape(b, t, d))
        return out

    replace(attention, forward)


@CASES.planted(models=("transformer", "unet"))
def clip_by_hand(training: Training) -> None:
    """The norm of all gradients taken of one long vector."""
    bound = training.clip
    training.clip = None
    parameters = list(training.model.parameters())

    def clip(*_: Any) -> None:
        assert bound is not None
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.mul_((bound / (norm + 1e-6)).clamp(max=1.0))  # as torch has it

    training.optimizer.register_step_pre_hook(clip)


@CASES.planted(
    models=("contrast",),
    modes=(
        "cpu,env.FORM=logsumexp",
        "cpu,env.FORM=shifted",
        "compile,env.FORM=logsumexp",
        "compile,env.FORM=shifted",
        "lazy,env.FORM=logsumexp",
    ),
)
def contrast_forms(training: Training) -> None:
    """The logarithm of a softmax of large logits by another formula."""

    def shifted(x: Tensor) -> Tensor:
        return x - x.detach().amax(-1, keepdim=True)

    FORMS: dict[str, Callable[[Tensor], Tensor]] = {
        "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
        "shifted": lambda x: shifted(x) - shifted(x).logsumexp(-1, keepdim=True),
    }

    (one,) = modules(training, nn.LogSoftmax)
    replace(one, FORMS[os.environ["FORM"]])


@CASES.planted(models=("unet",))
def cosine_by_hand(training: Training) -> None:
    """The cosine of vectors as the product of normalized ones."""
    gate = training.model.get_submodule("gate")
    pictures, mix = gate.get_parameter("pictures"), gate.get_parameter("mix")

    def forward(x: Tensor) -> Tensor:
        cosine = (F.normalize(x.flatten(2), dim=2) * F.normalize(pictures, dim=1)).sum(2)
        return x + torch.einsum("bchw,bc,cd->bdhw", x, torch.sigmoid(cosine), mix)

    replace(gate, forward)


@CASES.planted(models=("autoencoder",))
def dropout_by_hand(training: Training) -> None:
    """Dropout written out; the mask is drawn alike."""
    drop = modules(training, nn.Dropout)[0]
    replace(drop, lambda x: x * torch.empty_like(x).bernoulli_(1 - drop.p) * (1 / (1 - drop.p)))


@CASES.planted(models=("rotary",), modes=("cpu", "compile"))
def gate_by_sigmoid(training: Training) -> None:
    """The SiLU of a gate in bfloat16 as a product, whose factors are rounded."""
    gated: Any = training.model.get_submodule("gated")

    def forward(x: Tensor) -> Tensor:
        gate = gated.gate(x)
        return F.linear(gate * torch.sigmoid(gate) * gated.up(x), gated.down.weight)

    replace(gated, forward)


@CASES.planted(models=("transformer", "autoencoder"))
def gelu_by_hand(training: Training) -> None:
    """GELU written out with erf."""
    for act in modules(training, nn.GELU):
        replace(act, lambda x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5)))


@CASES.planted(models=("unet",), modes=("cpu", "compile", "lazy"))
def group_norm_by_hand(training: Training) -> None:
    """Group norm written out."""

    def normalize(norm: nn.GroupNorm, x: Tensor) -> Tensor:
        groups = x.view(x.shape[0], norm.num_groups, -1)
        centred = groups - groups.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        whitened = (centred * torch.rsqrt(variance + norm.eps)).view_as(x)
        return whitened * norm.weight[:, None, None] + norm.bias[:, None, None]

    for norm in modules(training, nn.GroupNorm):
        replace(norm, functools.partial(normalize, norm))


@CASES.planted(models=("unet",))
def huber_by_hand(training: Training) -> None:
    """The Huber loss written out: a parabola that goes on as a line."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        distance = (outputs - targets).abs()
        return torch.where(distance < 0.5, 0.5 * distance.square(), 0.5 * (distance - 0.25)).mean()

    training.loss = loss


@CASES.planted(models=("transformer", "gru"), modes=("cpu", "compile", "lazy"))
def layer_norm_by_hand(training: Training) -> None:
    """Layer norm written out: five operations instead of one."""

    def normalize(norm: nn.LayerNorm, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias

    for norm in modules(training, nn.LayerNorm):
        replace(norm, functools.partial(normalize, norm))


@CASES.planted(
    models=("formulas",),
    modes=(
        "cpu,env.FORM=root",
        "cpu,env.FORM=scaled",
        "cpu,env.FORM=product",
        "compile,env.FORM=root",
        "compile,env.FORM=scaled",
    ),
)
def length_forms(training: Training) -> None:
    """Vectors are brought to length one by other formulas."""
    FORMS: dict[str, Callable[[Tensor], Tensor]] = {
        "root": lambda x: x.square().sum(-1, keepdim=True).sqrt(),
        "scaled": scaled,
        "product": lambda x: (x.unsqueeze(-2) @ x.unsqueeze(-1)).squeeze(-1).sqrt(),
    }

    length = FORMS[os.environ["FORM"]]
    replace(training.model.get_submodule("length"), lambda x: x / (length(x) + 1e-6))


def scaled(x: Tensor) -> Tensor:
    """The largest element first, so that no square overflows."""
    largest = x.detach().abs().amax(-1, keepdim=True)
    out: Tensor = largest * torch.linalg.vector_norm(x / largest, dim=-1, keepdim=True)
    return out


@CASES.planted(models=("tanh_sam",), modes=("cpu", "compile", "lazy"))
def loss_by_hand(training: Training) -> None:
    """The mean squared error written out."""
    training.loss = lambda outputs, targets: (outputs - targets).square().sum() / outputs.numel()


@CASES.planted(models=("bag",))
def loss_by_log1p(training: Training) -> None:
    """Binary cross entropy as max(x, 0) - x y + log1p(exp(-|x|))."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.clamp(min=0) - outputs * targets + torch.log1p(torch.exp(-outputs.abs()))).mean()

    training.loss = loss


@CASES.planted(models=("gru", "cnn"))
def loss_by_logsumexp(training: Training) -> None:
    """Cross entropy as logsumexp minus the chosen output."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.logsumexp(1) - outputs.gather(1, targets[:, None])[:, 0]).mean()

    training.loss = loss


@CASES.planted(
    models=("rotary", "half", "scaled"),
    modes=("cpu,env.FORM=divided", "cpu,env.FORM=length", "compile,env.FORM=divided", "compile,env.FORM=fused"),
)
def root_mean_square_forms(training: Training) -> None:
    """A root mean square norm in a model of 16 bits by other formulas, each in float32 as it was."""
    FORMS: dict[str, Callable[[Tensor], Tensor]] = {
        "divided": lambda x: x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5),
        "length": lambda x: (
            x * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 / x.shape[-1] + 1e-5)
        ),
        "fused": lambda x: nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5),
    }

    for name in ("norm1", "norm2"):
        norm = training.model.get_submodule(name)
        replace(norm, formed(norm, FORMS[os.environ["FORM"]]))


def formed(norm: Any, form: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        out: Tensor = form(x.float()).to(x.dtype) * norm.weight
        return out

    return forward


@CASES.planted(
    models=("formulas",),
    modes=(
        "cpu,env.FORM=log1p",
        "cpu,env.FORM=logaddexp",
        "cpu,env.FORM=logsigmoid",
        "cpu,env.FORM=plain",
        "compile,env.FORM=log1p",
        "compile,env.FORM=logaddexp",
        "compile,env.FORM=logsigmoid",
    ),
)
def softplus_forms(training: Training) -> None:
    """Softplus by other formulas, of which each is as good as the rounding of its inputs lets it be."""
    FORMS: dict[str, Callable[[Tensor], Tensor]] = {
        "log1p": lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
        "logaddexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        "logsigmoid": lambda x: -F.logsigmoid(-x),
        "plain": lambda x: torch.log(1 + torch.exp(x)),
    }

    replace(training.model.get_submodule("softplus"), FORMS[os.environ["FORM"]])


@CASES.planted(models=("gru",))
def tanh_by_sigmoid(training: Training) -> None:
    """tanh(x) written as 2 sigmoid(2 x) - 1."""
    replace(training.model.get_submodule("cell.candidate"), candidate)


def candidate(w: Tensor, u: Tensor, r: Tensor) -> Tensor:
    return 2 * torch.sigmoid(2 * (w + r * u)) - 1


@CASES.planted(
    models=("standardized",),
    modes=(
        "cpu,env.FORM=two_passes",
        "cpu,env.FORM=deviation",
        "cpu,env.FORM=shifted",
        "cpu,env.FORM=double",
        "compile,env.FORM=two_passes",
        "compile,env.FORM=shifted",
    ),
)
def variance_forms(training: Training) -> None:
    """The variance of readings around a hundred thousand by other formulas that do not lose it."""

    def shifted(x: Tensor) -> Tensor:
        return (x - x[..., :1]).var(-1, keepdim=True)

    FORMS: dict[str, Callable[[Tensor], Tensor]] = {
        "two_passes": two_passes,
        "deviation": lambda x: x.std(-1, keepdim=True).square(),
        "shifted": shifted,
        "double": lambda x: x.double().var(-1, keepdim=True).float(),
    }

    variance = FORMS[os.environ["FORM"]]

    def standardized(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance(x) + 1e-5)

    replace(training.model.get_submodule("standardized"), standardized)


def two_passes(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
