"""Kernels of `_scaled_dot_product_flash_attention_for_cpu` and of its backward.

In a compiled graph and below autograd, `scaled_dot_product_attention` becomes these ops. Shapes: query [B, H, L, E],
key and value [B, Hkv, S, E] with H a multiple of Hkv; the result [B, H, L, E] and the log-sum-exp of each row of scores
[B, H, L]. bfloat16 and float16 are computed in float32 and rounded once; `bf16` rounds each operation to bfloat16."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from numdrift.harness.errors import NotAvailable

from .precision import above_infinity, blocks, computing, largest_of

Tensor = torch.Tensor

BLOCK = 64
"""The number of keys that the online form processes together."""


Form = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Returns, for each row of scores, the weighted sum of the values, the sum of the weights, and the number that was
subtracted from the scores."""


def _whole_rows(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the softmax over whole rows."""
    largest = above_infinity(largest_of(scores, -1))
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    return torch.matmul(weights, values), total, largest


def _in_blocks(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute in blocks of `BLOCK` keys, rescaling the sums so far whenever the maximum of a row grows.

    Source: T. Dao, FlashAttention-2, 2023, algorithm 1.
    """
    # The least finite number, not -inf: in a fully masked block, -inf - -inf would be NaN.
    least = torch.finfo(scores.dtype).min
    largest = torch.full((*scores.shape[:-1], 1), least, dtype=scores.dtype, device=scores.device)
    total = torch.zeros_like(largest)
    result = scores.new_zeros((*scores.shape[:-1], values.shape[-1]))
    for block, block_values in zip(blocks(scores, BLOCK, -1), blocks(values, BLOCK, -2), strict=True):
        larger = torch.maximum(largest, largest_of(block, -1))
        weights = torch.exp(block - larger)
        rescaling = torch.exp(largest - larger)
        total = total * rescaling + weights.sum(-1, keepdim=True)
        result = result * rescaling + torch.matmul(weights, block_values)
        largest = larger
    return result, total, largest


def _attention(
    form: Form,
    dtype: torch.dtype | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute both results of the op; each operation rounds to `dtype` (None: the dtype in which ATen computes)."""
    dtype = dtype or computing(query.dtype)
    scores = _scores(dtype, query, key, dropout_p, is_causal, attn_mask, scale)
    result, total, largest = form(scores, _heads(value.to(dtype), query))
    # The result of a fully masked row is 0. Only such a row has a total below 1, namely 0.
    normalized = result / total.clamp(min=torch.finfo(total.dtype).tiny)
    logarithm = (torch.log(total) + largest).squeeze(-1)
    return normalized.to(query.dtype), logarithm.to(computing(query.dtype))


decomposed, online = partial(_attention, _whole_rows, None), partial(_attention, _in_blocks, None)
bf16, fp64 = partial(_attention, _whole_rows, torch.bfloat16), partial(_attention, _whole_rows, torch.float64)


def _gradients(
    dtype: torch.dtype | None,
    product: Callable[[Tensor, Tensor], Tensor],
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients dQ = dS K, dK = dS^T Q and dV = P^T g.

    P = exp(scores - logsumexp) and dS = P * (g V^T - sum(g * out)) * scale. Source: T. Dao, FlashAttention-2, 2023,
    algorithm 2.
    """
    dtype = dtype or computing(query.dtype)
    scores = _scores(dtype, query, key, dropout_p, is_causal, attn_mask, scale)
    weights = torch.exp(scores - above_infinity(logsumexp.to(dtype)).unsqueeze(-1))
    g, q = grad_out.to(dtype), query.to(dtype)
    keys, values = (_heads(tensor.to(dtype), query) for tensor in (key, value))
    row = (g * out.to(dtype)).sum(-1, keepdim=True)
    of_scores = weights * (product(g, values.transpose(-2, -1)) - row) * _factor(query, scale)
    of_query = product(of_scores, keys)
    # A key head that several query heads share receives the sum of their gradients.
    of_key = _summed_heads(product(of_scores.transpose(-2, -1), q), key)
    of_value = _summed_heads(product(weights.transpose(-2, -1), g), value)
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


backward_decomposed = partial(_gradients, None, torch.matmul)
backward_bf16 = partial(_gradients, torch.bfloat16, torch.matmul)
backward_reversed = partial(_gradients, None, lambda a, b: torch.matmul(a.flip(-1), b.flip(-2)))


def _scores(
    dtype: torch.dtype,
    query: Tensor,
    key: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> Tensor:
    """Return query @ key^T * scale + mask: [B, H, L, S]."""
    if dropout_p > 0:
        raise NotAvailable("dropout in flash attention", "the CPU's op has none", "choose another op")
    scores = torch.matmul(query.to(dtype), _heads(key.to(dtype), query).transpose(-2, -1))
    scores = scores * _factor(query, scale)
    if attn_mask is not None:
        scores = scores + attn_mask.to(dtype)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores


def _factor(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _heads(x: Tensor, query: Tensor) -> Tensor:
    """Repeat each key or value head for the query heads that share it."""
    return x.repeat_interleave(query.shape[1] // x.shape[1], 1) if x.shape[1] != query.shape[1] else x


def _summed_heads(gradient: Tensor, x: Tensor) -> Tensor:
    if gradient.shape[1] == x.shape[1]:
        return gradient
    groups = gradient.reshape(gradient.shape[0], x.shape[1], -1, *gradient.shape[2:])
    return groups.sum(2)
