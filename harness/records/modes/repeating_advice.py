"""The setting that makes a mode repeat its bits, by the mode's device and the op that does not repeat.

    cpu            index_put                     deterministic=on: it then adds in one thread
    cpu            an op that torch does not list    threads=1
    cuda           attention's backward          deterministic=on,sdpa=math
    cuda           median, bincount ...          none: torch has no kernel that repeats

The lists are those of `torch.use_deterministic_algorithms` (torch 2.13). The guide on accelerators gives the costs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .mode_registry import DEVICES_OF_THE_CPU
from .mode_spec import ModeSpec
from .setting_keys import CUDA, device_of

ADDS_SERIALLY = re.compile(r"_?(unsafe_)?(masked_)?(index_put(_impl)?|index_copy|put)_?")
"""The ops with a kernel for the CPU that repeats."""

ATTENTION = re.compile(r"_?(scaled_dot_product_)?(fused_)?(flash|efficient|cudnn)_attention\w*")

WITHOUT_KERNEL = re.compile(
    r"(avg_pool3d|adaptive_avg_pool[23]d|_adaptive_avg_pool[23]d|adaptive_max_pool2d|fractional_max_pool[23]d"
    r"|upsample_(linear|bilinear|bicubic|trilinear)\w*|reflection_pad[123]d|grid_sampler_[23]d|_?ctc_loss)_backward"
    r"|max_unpool[23]d|nll_loss2d(_forward)?|histc|bincount|median|nanmedian|kthvalue|cumsum|logcumsumexp|cumprod"
)
"""The ops for which torch has no kernel for CUDA that repeats."""


def repeating_advice(spec: ModeSpec, ops: Sequence[str] = (), *, compiled: bool = False) -> str:
    """Say which setting makes a mode repeat.

    `ops` are those that do not repeat, as in `aten.index_put.default`; empty if they are not known. In `compiled` code
    they may be part of any kernel.
    """
    names = [".".join(op.split(".")[1:2]) or op for op in ops]
    device = device_of(spec.base, spec.device)
    on_cpu = device in DEVICES_OF_THE_CPU
    if spec.capabilities.own_kernels:
        return "on a GPU, add env.XLA_FLAGS=--xla_gpu_deterministic_ops=true to the mode"
    if spec.deterministic in (None, "off"):
        if device == CUDA and any(ATTENTION.fullmatch(name) for name in names):
            return "add deterministic=on,sdpa=math to the mode (with 16-bit values sdpa=flash repeats, too)"
        if device == CUDA and names and all(WITHOUT_KERNEL.fullmatch(name) for name in names):
            return _without_kernel(names)
        unlisted = on_cpu and names and not compiled and not any(map(ADDS_SERIALLY.fullmatch, names))
        return _on_one_thread(spec, names) if unlisted else "add deterministic=on to the mode"
    if on_cpu:
        return _on_one_thread(spec, names)
    return _without_kernel(names)


def _on_one_thread(spec: ModeSpec, names: Sequence[str]) -> str:
    if spec.threads == 1:
        return f"replace {' and '.join(names) or 'the op'}: one thread does not make it repeat"
    return "add threads=1 to the mode"


def _without_kernel(names: Sequence[str]) -> str:
    what = " and ".join(dict.fromkeys(names)) or "the op"
    return f"replace {what}, or compute it on the CPU: torch has no kernel that repeats for this device"
