"""Attention in float64 by the formula. The blockwise kernel gives 0 for some rows whose scores are NaN."""

from __future__ import annotations

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query @ key.T + attn_mask) @ value, [..., L, Ev] from query [..., L, E], key [..., S,
    E]."""
    result: Tensor = aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result
