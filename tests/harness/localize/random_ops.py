"""The ops of random training steps: each makes a value from two others, and most have several ways to compute the same.

The first way of an op is the plain one. The other ways are decompositions of it, or write in place where it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Holder(Protocol):
    """What a step has beside its values: a module that it calls more than once, buffers, and its own generator."""

    shared: nn.Linear
    mean: Tensor
    spread: Tensor
    count: Tensor
    own: torch.Generator


Making = Callable[[Holder, Tensor, Tensor, float], Tensor]
Writing = Callable[[Holder, Tensor, Tensor, float], object]


def matrix(x: Tensor) -> Tensor:
    """A value of any shape as a matrix of 4 x 4."""
    if x.shape == (4, 4):
        return x
    if not x.numel():
        return x.sum().expand(4, 4)
    if x.dim() == 0 or x.shape == (4,):
        return x.expand(4, 4)
    flat = x.reshape(-1)
    return flat.repeat(-(-16 // flat.numel()))[:16].view(4, 4)


def both(function: Callable[[Tensor, Tensor, float], Tensor]) -> Making:
    """An op of two matrices."""
    return lambda m, x, y, c: function(matrix(x), matrix(y), c)


def single(function: Callable[[Tensor, float], Tensor]) -> Making:
    """An op of one value of any shape."""
    return lambda m, x, y, c: function(x, c)


def square(function: Callable[[Tensor, float], Tensor]) -> Making:
    """An op of one matrix."""
    return lambda m, x, y, c: function(matrix(x), c)


def _softmax(x: Tensor, c: float) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _norm(x: Tensor, c: float) -> Tensor:
    middle = x - x.mean(-1, keepdim=True)
    return middle * torch.rsqrt((middle * middle).mean(-1, keepdim=True) + 1e-5 * c)


def _topped(x: Tensor, c: float) -> Tensor:
    values, places = x.topk(2, 1)
    return values * c + places


def _sorted(x: Tensor, c: float) -> Tensor:
    values, places = x.sort(0)
    return values + x.gather(0, places) * c


def _parts(x: Tensor, y: Tensor, c: float) -> Tensor:
    upper, lower = x.split(2)
    return torch.cat([lower * c, y[:2], upper])[1:5]


def _listed(x: Tensor, y: Tensor, c: float) -> Tensor:
    first, second = torch._foreach_mul([x, y], c)
    return first - second


def _scattered(x: Tensor, y: Tensor, c: float) -> Tensor:
    places = (x.detach() * 3).round().long() % 4
    return torch.zeros(4, 4).scatter_add(1, places, y * c)


def _attended(x: Tensor, y: Tensor, c: float) -> Tensor:
    return F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None], scale=c)[0, 0]


def _attended_in_ops(x: Tensor, y: Tensor, c: float) -> Tensor:
    return torch.softmax(x @ y.t() * c, -1) @ x


def _chosen(x: Tensor, c: float) -> Tensor:
    return x * c if bool(x.detach().sum() > 0) else x.sin()


def _bits(x: Tensor, c: float) -> Tensor:
    words = x.detach().clone().view(torch.int32)
    words.bitwise_and_(-4096)
    return words.view(torch.float32) * c


def _selected(x: Tensor, c: float) -> Tensor:
    return x[x > 0] * c


def _normed_by_running(m: Holder, x: Tensor, y: Tensor, c: float) -> Tensor:
    return F.batch_norm(matrix(x), m.mean, m.spread, training=True, momentum=0.1, eps=1e-5 * c)


def _again(m: Holder, x: Tensor, y: Tensor, c: float) -> Tensor:
    found: Tensor = m.shared(matrix(x)) * c
    return found


def _own_noise(m: Holder, x: Tensor, y: Tensor, c: float) -> Tensor:
    return x + torch.rand(x.shape, generator=m.own) * c


def _filled(m: Holder, x: Tensor, y: Tensor, c: float) -> Tensor:
    made = torch.empty_like(x)
    made.data.copy_(x.data).mul_(c)
    return made + x


def _spread(x: Tensor, c: float) -> Tensor:
    variance, mean = torch.var_mean(x, 1)
    return variance * c + mean


def _pooled(x: Tensor, c: float) -> Tensor:
    values, places = F.max_pool2d(x[None, None], 2, return_indices=True)
    return values[0, 0] * c + places[0, 0]


def _entropy(x: Tensor, y: Tensor, c: float) -> Tensor:
    return F.cross_entropy(x, y.detach().argmax(1)) * c


def _recomputed(x: Tensor, y: Tensor, c: float) -> Tensor:
    found: Tensor = checkpoint(lambda x, y: torch.tanh(x @ y) * c, x, y, use_reentrant=False)
    return found


def _sparse(x: Tensor, y: Tensor, c: float) -> Tensor:
    found: Tensor = torch.sparse.mm((x.detach() * (x.detach() > 0)).to_sparse(), y) * c
    return found


def _complex(x: Tensor, c: float) -> Tensor:
    return torch.view_as_real(torch.fft.rfft(x)).mul(c)


def _words(x: Tensor, c: float) -> Tensor:
    counts = torch.bincount((x.detach().reshape(-1) * 4).long().abs() % 4, minlength=4)
    return counts * c


MAKING: dict[str, Sequence[Making]] = {
    "add": [
        both(lambda x, y, c: torch.add(x, y, alpha=c)),
        both(lambda x, y, c: x.clone().add_(y, alpha=c)),
        both(lambda x, y, c: x + y * c),
    ],
    "mul": [both(lambda x, y, c: x * y), both(lambda x, y, c: y * x), both(lambda x, y, c: x.clone().mul_(y))],
    "product": [
        both(lambda x, y, c: x @ y * c),
        both(lambda x, y, c: torch.bmm(x[None], y[None])[0] * c),
        both(lambda x, y, c: (y.t() @ x.t()).t() * c),
        both(lambda x, y, c: (x[:, :, None] * y[None]).sum(1) * c),
    ],
    "tanh": [
        single(lambda x, c: torch.tanh(x)),
        single(lambda x, c: x.clone().tanh_()),
        single(lambda x, c: 2 * torch.sigmoid(2 * x) - 1),
    ],
    "scale": [
        single(lambda x, c: x * c),
        single(lambda x, c: x.clone().mul_(c)),
        single(lambda x, c: x.t() * c if x.dim() == 1 else (x.transpose(0, -1) * c).transpose(0, -1) if x.dim() else x * c),
    ],
    "gelu": [
        single(lambda x, c: F.gelu(x, approximate="tanh" if c > 1 else "none")),
        single(lambda x, c: F.gelu(x, approximate="tanh") if c > 1 else x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))),
    ],
    "softmax": [square(lambda x, c: torch.softmax(x, -1)), square(_softmax)],
    "norm": [square(lambda x, c: F.layer_norm(x, (4,), eps=1e-5 * c)), square(_norm)],
    "parts": [both(_parts)],
    "sums": [
        both(lambda x, y, c: x.sum(0, keepdim=True) + y.mean(1, keepdim=True) * c),
        both(lambda x, y, c: y.sum(1, keepdim=True) / 4 * c + x.sum(0, keepdim=True)),
    ],
    "clone": [single(lambda x, c: x.clone()), single(lambda x, c: x), single(lambda x, c: x.contiguous())],
    "transpose": [square(lambda x, c: x.t()), square(lambda x, c: x.t().contiguous()), square(lambda x, c: x.t().clone())],
    "alias": [square(lambda x, c: x[:]), square(lambda x, c: x[:].clone()), square(lambda x, c: x.view(2, 8).view(4, 4))],
    "sorted": [square(_sorted)],
    "topped": [square(_topped)],
    "largest": [
        square(lambda x, c: x.max(1).values * c + x.max(1).indices),
        square(lambda x, c: x.amax(1) * c + x.argmax(1)),
        square(lambda x, c: x.sort(1).values[:, -1] * c + x.max(1).indices),
    ],
    "listed": [both(_listed), both(lambda x, y, c: x * c - y * c)],
    "scattered": [both(_scattered)],
    "attended": [both(_attended), both(_attended_in_ops)],
    "chosen": [square(_chosen)],
    "bits": [square(_bits)],
    "selected": [square(_selected)],
    "whole": [single(lambda x, c: x.sum() * c), single(lambda x, c: x.sum().mul_(c))],
    "none": [single(lambda x, c: x.reshape(-1)[:0] * c), single(lambda x, c: torch.zeros(0) * x.sum())],
    "joined": [both(lambda x, y, c: torch.cat([x[:0], y, x[2:2], x])[2:6] * c)],
    "expanded": [single(lambda x, c: x.mean().expand(4, 4)), single(lambda x, c: x.mean().expand(4, 4).clone())],
    "strided": [square(lambda x, c: x.as_strided((4, 4), (2, 1))), square(lambda x, c: x.clone().as_strided((4, 4), (2, 1)))],
    "unfolded": [square(lambda x, c: x.reshape(-1).unfold(0, 4, 4) * c)],
    "double": [single(lambda x, c: (x.double() * c).float()), single(lambda x, c: (x.double() * c).to(torch.float32))],
    "half": [single(lambda x, c: (x.bfloat16() * c).float())],
    "complex": [square(_complex)],
    "words": [single(_words)],
    "spread": [square(_spread), square(lambda x, c: x.var(1) * c + x.mean(1))],
    "pooled": [square(_pooled)],
    "entropy": [both(_entropy), both(lambda x, y, c: F.nll_loss(F.log_softmax(x, 1), y.detach().argmax(1)) * c)],
    "recomputed": [both(_recomputed), both(lambda x, y, c: torch.tanh(x @ y) * c)],
    "sparse": [both(_sparse)],
    "where": [both(lambda x, y, c: torch.where(x > y, x * c, y)), both(lambda x, y, c: torch.where(y < x, x * c, y))],
    "stacked": [both(lambda x, y, c: torch.stack([x, y * c])), both(lambda x, y, c: torch.cat([x[None], y[None] * c]))],
    "unbound": [both(lambda x, y, c: sum((row * c for row in torch.stack([x, y, x]).unbind(1)), torch.zeros(4)))],
    "cumulated": [square(lambda x, c: x.cumsum(0) * c), square(lambda x, c: x.cumsum(0).mul_(c))],
    "looked up": [both(lambda x, y, c: F.embedding(x.detach().argmax(1), y) * c), both(lambda x, y, c: y[x.detach().argmax(1)] * c)],
    "put": [both(lambda x, y, c: x.index_put((torch.tensor([0, 2, 0]),), y[:3] * c, accumulate=True))],
    "triangle": [square(lambda x, c: torch.linalg.qr(x + 4 * torch.eye(4))[1] * c)],
    "cut off": [single(lambda x, c: x.detach() * c), single(lambda x, c: x.data * c)],
    "running": [_normed_by_running],
    "again": [_again],
    "own noise": [_own_noise],
    "filled": [_filled],
    "ranged": [square(lambda x, c: x + torch.arange(4) * c), square(lambda x, c: torch.arange(4) * c + x)],
}  # fmt: skip

DRAWING: dict[str, Sequence[Making]] = {
    "noise": [single(lambda x, c: x + torch.randn(x.shape) * c), single(lambda x, c: x + torch.randn(x.shape).mul_(c))],
    "dropout": [single(lambda x, c: F.dropout(x, 0.5))],
    "shuffled": [square(lambda x, c: x[torch.randperm(4)] * c)],
}


def _overlapping(m: Holder, x: Tensor, y: Tensor, c: float) -> None:
    rows = x.data
    if rows.dim() and rows.shape[0] > 1:
        rows[1:].copy_(rows[:-1].clone())


def _half(m: Holder, x: Tensor, y: Tensor, c: float) -> None:
    rows = x.data
    if rows.dim():
        rows[..., rows.shape[-1] // 2 :].mul_(c)


def _counted(m: Holder, x: Tensor, y: Tensor, c: float) -> None:
    m.count.add_(1)
    m.mean.lerp_(matrix(y).data.mean(0), 0.1 * c)


WRITING: dict[str, Writing] = {
    "add_": lambda m, x, y, c: x.data.add_(y.data.sum(), alpha=c),
    "fill_": lambda m, x, y, c: x.data.fill_(c),
    "copy_": lambda m, x, y, c: x.data.copy_(y.data) if x.shape == y.shape else x.data.zero_(),
    "tanh_": lambda m, x, y, c: x.data.tanh_().mul_(c),
    "masked_": lambda m, x, y, c: x.data.masked_fill_(x.data > 0.5, c),
    "lists_": lambda m, x, y, c: torch._foreach_mul_([x.data, y.data], c),
    "normal_": lambda m, x, y, c: x.data.copy_(torch.rand(x.shape, generator=m.own)),
    "row_": _overlapping,
    "half_": _half,
    "count_": _counted,
}

NUMBERED = frozenset({
    *("add", "product", "scale", "parts", "sums", "topped", "largest", "listed", "scattered", "attended", "unfolded"),
    *("double", "complex", "spread", "pooled", "entropy", "recomputed", "stacked", "cumulated", "looked up", "put"),
    *("triangle", "again", "cut off", "filled", "joined", "noise", "shuffled"),
})  # fmt: skip
"""The ops whose result changes with their number."""
