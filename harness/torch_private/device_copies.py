"""Hooks on the two ops by which values leave or reach a device, on the device's own dispatch key.

`to`, `cpu` and `cuda` call `copy_`; `item`, `float(tensor)` and `if tensor` call `_local_scalar_dense`. No other op
goes through Python, and compilers see neither hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .patches import Undo
from .presence import private
from .registered_kernels import Overrides, dispatch_key, original_kernel

Copied = Callable[[torch.Tensor, torch.Tensor, bool, Callable[[], Any]], Any]
"""Makes a copy and returns its result; called with the source, the target, whether the host need not wait, and the
function that copies."""

Read = Callable[[torch.Tensor, Callable[[], Any]], Any]
"""Reads the one value of a tensor; called with the tensor and the function that reads."""


def around_copies(device: str, copied: Copied, read: Read) -> Undo:
    """Make `copied` perform every `copy_` that involves a device, and `read` every read of a value.

    Raises NotAvailable.
    """
    key = dispatch_key(device.partition(":")[0])
    copy, scalar = torch.ops.aten.copy_.default, torch.ops.aten._local_scalar_dense.default
    make, take = original_kernel(copy, key), original_kernel(scalar, key)
    overrides = Overrides()

    def copying(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
        return copied(source, target, non_blocking, lambda: make(target, source, non_blocking))

    def reading(tensor: torch.Tensor) -> Any:
        return read(tensor, lambda: take(tensor))

    overrides.replace(copy, key, copying)
    overrides.replace(scalar, key, reading)
    return overrides.close


def has_fallback(device: str) -> bool:
    """Return whether the device has its own fallback, which executes the ops for which the device has no kernel."""
    key = getattr(private("torch._C", "DispatchKey"), dispatch_key(device.partition(":")[0]))
    return bool(private("torch._C", "_dispatch_has_backend_fallback")(key))
