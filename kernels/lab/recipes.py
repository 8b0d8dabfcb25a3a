"""Arguments of norms, softmaxes, products, reductions and optimizers, drawn from an input set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .calls import LabCall
from .inputs import Source

aten = torch.ops.aten
EPS = 1e-5

Recipe = Callable[[Source, str], Iterator[LabCall]]


def _rows(source: Source) -> list[tuple[int, int]]:
    """Return shapes with about `source.samples` elements in total: many short rows of odd length, and fewer long
    rows."""
    return [(max(4, source.samples // (2 * columns)), columns) for columns in (33, 256)]


def _softmax(source: Source, variant: str) -> Iterator[LabCall]:
    for shape in _rows(source):
        yield LabCall((source.rows(*shape), 1, False), {})
    yield LabCall((source.rows(3, 37, 5), 1, False), {})


def _safe_softmax(source: Source, variant: str) -> Iterator[LabCall]:
    for call in _softmax(source, variant):
        yield LabCall(call.args[:2], {})


def _softmax_backward(function: Callable[..., torch.Tensor]) -> Recipe:
    def recipe(source: Source, variant: str) -> Iterator[LabCall]:
        for shape in _rows(source):
            logits = source.rows(*shape)
            output = function(logits.double(), 1).to(source.dtype)
            yield LabCall((source.others(*shape), output, 1, source.dtype), {})

    return recipe


def _layer_norm(source: Source, variant: str) -> Iterator[LabCall]:
    for rows, columns in _rows(source):
        weight, bias = source.parameters(columns), source.parameters(columns)
        yield LabCall((source.rows(rows, columns), [columns], weight, bias, EPS), {})
    yield LabCall((source.rows(2, 3, 35), [35], None, None, EPS), {})


def _layer_norm_backward(source: Source, variant: str) -> Iterator[LabCall]:
    for forward in _layer_norm(source, variant):
        x, shape, weight, bias, _ = forward.args
        _, mean, rstd = source.saved(aten.native_layer_norm, forward.args)
        mask = [True, weight is not None, bias is not None]
        yield LabCall((source.others(*x.shape), x, shape, mean, rstd, weight, bias, mask), {})


def _batch_norm(source: Source, variant: str) -> Iterator[LabCall]:
    # [N, C, H, W] in which special numbers stay within every second channel
    images, channels, height, width = 4, 6, 5, max(3, source.samples // 120)
    drawn = source.rows(channels, images * height * width)
    x = drawn.reshape(channels, images, height, width).transpose(0, 1).contiguous()
    weight, bias, mean = (source.parameters(channels) for _ in range(3))
    # away from 0: otherwise all errors would come from the invstd of a variance near 0
    var = (source.parameters(channels) ** 2 + 0.1).to(source.dtype)
    yield LabCall((x, weight, bias, mean, var, variant == "training", 0.1, EPS), {})


def _batch_norm_backward(source: Source, variant: str) -> Iterator[LabCall]:
    for forward in _batch_norm(source, variant):
        x, weight, _, mean, var, training, _, eps = forward.args
        _, save_mean, save_invstd = source.saved(aten.native_batch_norm, forward.args)
        gradient = source.others(*x.shape)
        saved = (save_mean, save_invstd, training, eps, [True, True, True])
        yield LabCall((gradient, x, weight, mean, var, *saved), {})


def _batch_norm_evaluation(source: Source, variant: str) -> Iterator[LabCall]:
    for call in _batch_norm(source, "evaluation"):
        yield LabCall((*call.args[:5], *call.args[6:]), {})


def _matrices(source: Source) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield [M, K] and [K, N] with a short and a long K; the products have about `source.samples` elements in total."""
    side = max(3, math.isqrt(source.samples // 2)) | 1  # odd: no kernel's block size divides it
    for inner in (33, 512):
        yield source.rows(side, inner), source.others(inner, side)


def _mm(source: Source, variant: str) -> Iterator[LabCall]:
    for left, right in _matrices(source):
        yield LabCall((left, right), {})
    for left, right in _matrices(source):
        yield LabCall((left[:9], right.t().contiguous().t()), {})


def _addmm(source: Source, variant: str) -> Iterator[LabCall]:
    for keywords in ({}, {"beta": 0.5, "alpha": -2.0}):
        for left, right in _matrices(source):
            yield LabCall((source.parameters(right.shape[1]), left, right), keywords)


def _bmm(source: Source, variant: str) -> Iterator[LabCall]:
    side = max(3, math.isqrt(source.samples // 4)) | 1
    yield LabCall((source.rows(3, side, 65), source.others(3, 65, side)), {})


def _linear(source: Source, variant: str) -> Iterator[LabCall]:
    for left, right in _matrices(source):
        yield LabCall((left, right.t().contiguous(), source.parameters(right.shape[1])), {})


def _attention(source: Source, variant: str) -> Iterator[LabCall]:
    length = max(5, source.samples // 128) | 1
    for causal in (False, True):
        query, key, value = (
            source.rows(2, 2, length, 32),
            *(source.others(2, 2, length, 32) for _ in range(2)),
        )
        yield LabCall((query, key, value, None, 0.0, causal), {})


def _flash_attention(source: Source, variant: str) -> Iterator[LabCall]:
    for call in _attention(source, variant):
        query, key, value, _, dropout, causal = call.args
        yield LabCall((query, key, value, dropout, causal), {})


def _flash_attention_backward(source: Source, variant: str) -> Iterator[LabCall]:
    for forward in _flash_attention(source, variant):
        query, key, value, dropout, causal = forward.args
        output, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(*forward.args)
        gradient = source.others(*output.shape)
        yield LabCall((gradient, query, key, value, output, logsumexp, dropout, causal), {})


def _reduction(source: Source, variant: str) -> Iterator[LabCall]:
    yield LabCall((source.rows(max(4, source.samples // 32), 1025), [1], False), {})
    yield LabCall((source.rows(max(4, source.samples // 8), 33), [1], False), {})
    yield LabCall((source.rows(257, 33).t().contiguous().t(), [0], True), {})


def _whole_reduction(source: Source, variant: str) -> Iterator[LabCall]:
    for _ in range(8):
        yield LabCall((source.rows(1, source.samples | 1),), {})


def _adam(source: Source, variant: str) -> Iterator[LabCall]:
    shapes = [(source.samples // 2 | 1,), (5, 7)]
    for decay, amsgrad in ((0.0, False), (0.01, True)):
        parameters = [source.parameters(*shape) for shape in shapes]
        gradients = [source.elements(*shape) for shape in shapes]
        first = [(0.1 * source.elements(*shape)).to(source.dtype) for shape in shapes]
        second = [(0.1 * source.elements(*shape)).square().to(source.dtype) for shape in shapes]
        # amsgrad's largest second moment is consistent with the other moments
        largest = [(moment * 1.5).to(source.dtype) for moment in second] if amsgrad else []
        steps = [torch.tensor(7.0) for _ in shapes]
        numbers: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": decay, "eps": 1e-8}
        keywords = {**numbers, "amsgrad": amsgrad, "maximize": False}
        yield LabCall((parameters, gradients, first, second, largest, steps), keywords)


RECIPES: dict[str, Recipe] = {
    "_softmax": _softmax,
    "_safe_softmax": _safe_softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward(torch.softmax),
    "_log_softmax_backward_data": _softmax_backward(torch.log_softmax),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm_evaluation,
    "mm": _mm,
    "matmul": _mm,
    "addmm": _addmm,
    "bmm": _bmm,
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_attention_math": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _flash_attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _flash_attention_backward,
    "sum": _reduction,
    "sum.dim_IntList": _reduction,
    "sum.default": _whole_reduction,
    "mean": _reduction,
    "mean.dim": _reduction,
    "mean.default": _whole_reduction,
    "_fused_adam_": _adam,
    "_fused_adamw_": _adam,
    "_fused_adam": _adam,
    "_fused_adamw": _adam,
}

_PHASES = ("training", "evaluation")

VARIANTS: dict[str, tuple[str, ...]] = {
    "native_batch_norm": _PHASES,
    "native_batch_norm_backward": _PHASES,
    "_native_batch_norm_legit": _PHASES,
    "_native_batch_norm_legit_functional": _PHASES,
}
"""The kinds of calls of each op that are measured separately."""
