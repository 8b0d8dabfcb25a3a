"""The implementation that torch's optimizers choose by default."""

from __future__ import annotations

from ..errors import NotAvailable
from .presence import private


def takes_foreach_on_the_cpu() -> bool | None:
    """Return whether torch's optimizers update parameters on the CPU in groups by default; None if this is unknown."""
    try:
        devices = private("torch.utils._foreach_utils", "_get_foreach_kernels_supported_devices")()
    except NotAvailable:
        return None
    return "cpu" in devices
