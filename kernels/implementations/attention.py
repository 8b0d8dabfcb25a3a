"""Kernels of `scaled_dot_product_attention`: `math_form`, `flash`, `decomposed`, `fp64` and `bf16`.

The op is swapped above autograd, so its kernels use differentiable operations. Under autocast, they compute in the
dtype of autocast. Shapes: query [..., L, E], key [..., S, E], value [..., S, Ev] and the result [..., L, Ev]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from numdrift.harness.errors import KernelError, NotAvailable

from .precision import autocast, without_autocast

aten = torch.ops.aten
Tensor = torch.Tensor
OP = "scaled_dot_product_attention"


@dataclass(frozen=True, slots=True)
class Attention:
    """The op's arguments. `mask` contains the numbers to add to the scores: for a boolean mask, 0 for True and -inf for
    False."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool

    def to(self, dtype: torch.dtype) -> Attention:
        mask = None if self.mask is None else self.mask.to(dtype)
        query, key, value = (tensor.to(dtype) for tensor in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value, mask=mask)


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """A way to compute attention, callable with the signature of the op."""

    compute: Callable[[Attention], Tensor]

    def __call__(
        self,
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
        q, k, v, mask = autocast(query, key, value, attn_mask)
        assert q is not None and k is not None and v is not None
        mask = _as_summand(mask, q.dtype)
        with without_autocast(q.device.type):
            return self.compute(Attention(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa))


def with_math(arguments: Attention) -> Tensor:
    """Compute ATen's own composition of products and a softmax; query and key are each scaled by sqrt(scale)."""
    result: Tensor = aten._scaled_dot_product_attention_math(
        arguments.query,
        arguments.key,
        arguments.value,
        arguments.mask,
        arguments.dropout,
        arguments.is_causal,
        None,
        scale=arguments.scale,
        enable_gqa=arguments.enable_gqa,
    )[0]
    return result


def with_flash(arguments: Attention) -> Tensor:
    """Call ATen's blockwise kernel for the CPU. Raises NotAvailable, with the reason, if the kernel cannot be used.

    Source of the constraints: use_flash_attention_cpp in ATen/native/transformers/sdp_utils_cpp.cpp.
    """
    query, key, mask = arguments.query, arguments.key, arguments.mask
    tensors = (query, key, arguments.value)
    refusals = {
        "it runs only on the CPU": any(tensor.device.type != "cpu" for tensor in tensors),
        "it accepts only tensors of 4 dimensions": any(tensor.dim() != 4 for tensor in tensors),
        "it supports no dropout": arguments.dropout > 0,
        "query, key and value must have the same head size": any(
            tensor.shape[-1] != query.shape[-1] for tensor in tensors
        ),
        "query, key and value must have the same dtype": any(tensor.dtype != query.dtype for tensor in tensors),
        "it accepts no empty tensors": any(tensor.numel() == 0 for tensor in tensors),
        "it accepts no mask together with is_causal": mask is not None and arguments.is_causal,
        "it computes no gradient of the mask": mask is not None and mask.requires_grad,
        "it accepts only a mask of 2 or 4 dimensions": mask is not None and mask.dim() not in (2, 4),
        "key has fewer heads and enable_gqa is off": (
            query.dim() == key.dim() == 4 and key.shape[1] != query.shape[1] and not arguments.enable_gqa
        ),
    }
    reason = next((reason for reason, refused in refusals.items() if refused), "")
    if reason:
        raise NotAvailable(
            f"kernel {OP}=flash", reason, "choose math, or limit the swap to other modules with OP@MODULE"
        )
    # The blockwise kernel assumes that rows are dense, whatever their stride.
    dense = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors)
    result: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
        *dense,
        0.0,
        arguments.is_causal,
        attn_mask=mask,
        scale=arguments.scale,
    )[0]
    return result


def op_by_op(arguments: Attention) -> Tensor:
    """Compute softmax(query @ key^T * scale + mask) @ value; the result of a fully masked row is 0, as in ATen."""
    query, key, value, mask = arguments.query, arguments.key, arguments.value, arguments.mask
    if arguments.enable_gqa:
        key, value = (heads.repeat_interleave(query.shape[-3] // heads.shape[-3], -3) for heads in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if arguments.scale is None else arguments.scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if arguments.is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        mask = _as_summand(seen, scores.dtype)
    if mask is not None:
        scores = scores + mask
    # safe: a fully masked row becomes 0, not NaN
    weights: Tensor = aten._safe_softmax(scores, -1)
    return torch.matmul(torch.dropout(weights, arguments.dropout, arguments.dropout > 0), value)


def in_float64(arguments: Attention) -> Tensor:
    """Compute ATen's composition and its backward in float64, and round each result once. Raises KernelError for
    dropout."""
    if arguments.dropout > 0:
        raise KernelError(f"{OP}=fp64", "cannot reproduce dropout, which draws random numbers")
    return with_math(arguments.to(torch.float64)).to(arguments.query.dtype)


def in_bfloat16(arguments: Attention) -> Tensor:
    """Compute ATen's composition and its backward in bfloat16."""
    return with_math(arguments.to(torch.bfloat16)).to(arguments.query.dtype)


def _as_summand(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return the mask as numbers to add to the scores. The ATen ops that a kernel calls would add False as 0 and True
    as 1."""
    if mask is None or mask.dtype != torch.bool:
        return None if mask is None else mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not(), -math.inf)


math_form = AttentionKernel(with_math)
flash = AttentionKernel(with_flash)
decomposed = AttentionKernel(op_by_op)
fp64 = AttentionKernel(in_float64)
bf16 = AttentionKernel(in_bfloat16)
