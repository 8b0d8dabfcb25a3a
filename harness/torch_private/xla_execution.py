"""torch_xla executes what is pending. Written after torch_xla 2.9 and not run on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .presence import private


def start_xla() -> None:
    """Raises NotAvailable where torch_xla is not installed."""
    private("torch_xla.core.xla_model", "xla_device")()


def sync_xla(tensors: Sequence[torch.Tensor]) -> None:
    """Execute what is pending, in one graph; with it everything else that lives on the device and is
    pending."""
    if any(one.device.type == "xla" for one in tensors):
        private("torch_xla.core.xla_model", "mark_step")()
