"""The CPU's random numbers on another device, for `draws=cpu`.

torch's own CPU kernels draw them from the CPU's default generator, in the same order as in a run on the CPU. They are
then copied to the device. Without `draws=cpu`, two modes on two devices draw different numbers from the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..tape.tape import leaves, mapped
from ..torch_private.device_kernels import DeviceKernel, device_kernels
from ..torch_private.operators import find_overload, written_values
from ..torch_private.patches import Undo
from ..torch_private.registered_kernels import Overrides, decomposed, dispatch_key

FILLING_NAMES = """
bernoulli.p bernoulli_.float cauchy_ exponential_ geometric_ log_normal_ normal_ random_ random_.from random_.to
uniform_
"""
FILLING = frozenset(FILLING_NAMES.split())
"""Ops that draw every element from the same distribution. They do not read the previous values of the tensor."""

READING_NAMES = """
bernoulli bernoulli_.Tensor binomial multinomial multinomial.out native_dropout normal.Tensor_Tensor normal.Tensor_float
normal.float_Tensor poisson randperm randperm.generator_out rrelu_with_noise rrelu_with_noise_ _fused_dropout
_sample_dirichlet _standard_gamma
"""
READING = frozenset(READING_NAMES.split())
"""Ops whose draws depend on the values of their arguments. Pending ops that compute those values are executed first."""

ATTENTION, PLAIN_ATTENTION = "scaled_dot_product_attention", "_scaled_dot_product_attention_math"
"""The op that scripts call, and the op that computes the same result from plain ops."""


def draw_on_the_cpu(device: str) -> Undo:
    """Make each random op of a device draw on the CPU, and return a function that undoes this.

    Attention with dropout is computed from plain ops, because the fused kernels draw internally. For the CPU, nothing
    is changed. Raise NotAvailable if torch does not report the device's kernels.
    """
    kind = device.partition(":")[0]
    overrides = Overrides()
    if kind == "cpu":
        return overrides.close
    key = dispatch_key(kind)
    for kernel in list(device_kernels(key)):
        name = kernel.name.removeprefix("aten::")
        if name in FILLING or name in READING:
            overrides.replace(kernel.operation, key, _drawn(kernel, kind, reads=name in READING))
    overrides.replace(find_overload(ATTENTION), f"Autograd{key}", _attention)
    return overrides.close


def _drawn(kernel: DeviceKernel, kind: str, *, reads: bool) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        device = torch.device(kind)

        def on_the_cpu(value: Any) -> Any:
            nonlocal device
            if isinstance(value, torch.Tensor) and value.device.type == kind:
                device = value.device
                return value.cpu() if reads else torch.empty(value.shape, dtype=value.dtype)
            if isinstance(value, torch.device):
                device = value
                return torch.device("cpu")
            # The device's own generator cannot draw on the CPU, so the CPU's default generator draws.
            return None if isinstance(value, torch.Generator) and value.device.type == kind else value

        arguments = mapped(on_the_cpu, args)
        keywords = {name: mapped(on_the_cpu, value) for name, value in kwargs.items()}
        if "device" in keywords:
            keywords["device"] = torch.device("cpu")
        outputs = kernel.operation(*arguments, **keywords)
        written = list(written_values(kernel.operation, args, kwargs))
        if written:
            for target, drawn in zip(written, written_values(kernel.operation, arguments, keywords), strict=True):
                target.copy_(drawn)
            if len(list(leaves(outputs))) == len(written):  # in place
                return written[0]
        moved = [value.to(device) if isinstance(value, torch.Tensor) else value for value in leaves(outputs)]
        return tuple(moved) if isinstance(outputs, (tuple, list)) else moved[0]

    return draw


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute `scaled_dot_product_attention` as torch does; with dropout, compute it from plain ops, as on the CPU."""
    keywords = {"scale": scale, "enable_gqa": enable_gqa}
    if not dropout_p:
        overload = find_overload(ATTENTION)
        return decomposed(overload, query, key, value, attn_mask, dropout_p, is_causal, **keywords)
    plain = find_overload(PLAIN_ATTENTION)
    return plain(query, key, value, attn_mask, dropout_p, is_causal, None, **keywords)[0]
