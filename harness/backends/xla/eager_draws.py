"""Random numbers of eager mode on the device `xla`, for `fallback_random=on`: drawn on the CPU by torch's own kernels,
so from the generator that `torch.manual_seed` sets and in the same order, and then brought to the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...tape.tape import leaves, mapped
from ...torch_private.dispatching import Overrides
from ...torch_private.operators import DeviceKernel, device_kernels, written_values
from ...torch_private.patches import Undo
from ...torch_private.xla import XLA_KEY

FILLING_NAMES = """
bernoulli.p bernoulli_.float cauchy_ exponential_ geometric_ log_normal_ normal_ random_ random_.from random_.to
uniform_
"""
FILLING = frozenset(FILLING_NAMES.split())
"""Ops that draw for each element alike: what the tensor held before counts for nothing, and is not asked for."""

READING_NAMES = """
bernoulli bernoulli_.Tensor binomial multinomial native_dropout normal.Tensor_Tensor normal.Tensor_float
normal.float_Tensor poisson randperm rrelu_with_noise _fused_dropout _sample_dirichlet _standard_gamma
"""
READING = frozenset(READING_NAMES.split())
"""Ops that draw by what they are given, whose values are then needed: what is pending is executed before."""


def draw_by_eager() -> Undo:
    """Have each random op of the device drawn on the CPU; gives the undo. Raises NotAvailable."""
    overrides = Overrides()
    for kernel in list(device_kernels(XLA_KEY)):
        name = kernel.name.removeprefix("aten::")
        if name in FILLING or name in READING:
            overrides.replace(kernel.operation, XLA_KEY, _drawn(kernel, reads=name in READING))
    return overrides.close


def _drawn(kernel: DeviceKernel, *, reads: bool) -> Callable[..., Any]:
    def on_the_cpu(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "xla":
            return value.cpu() if reads else torch.empty(value.shape, dtype=value.dtype)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def draw(*args: Any, **kwargs: Any) -> Any:
        arguments = mapped(on_the_cpu, args)
        keywords = {name: mapped(on_the_cpu, one) for name, one in kwargs.items()}
        if "device" in keywords:
            keywords["device"] = torch.device("cpu")
        outputs = kernel.operation(*arguments, **keywords)
        written = list(written_values(kernel.operation, args, kwargs))
        if written:
            for there, here in zip(written, written_values(kernel.operation, arguments, keywords), strict=True):
                there.copy_(here)
            if len(list(leaves(outputs))) == len(written):  # in place
                return written[0]
        moved = [one.to("xla") if isinstance(one, torch.Tensor) else one for one in leaves(outputs)]
        return tuple(moved) if isinstance(outputs, (tuple, list)) else moved[0]

    return draw
