"""Make devices ready in a process that runs no script, such as a referee or a localizer.

Only a process of a mode touches the mode's device (docs/architecture.md). A referee or a localizer belongs to the modes
whose tapes it executes. It loads the packages that those modes' devices need, and installs no swap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from ..errors import NotAvailable
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec
from .device_presence import require_device
from .mode_presence import require_here

HOST = ("cpu", "meta")
"""Devices that every process has."""


def open_devices(devices: Iterable[str]) -> None:
    """Load the packages that these devices need, such as a vendor's, through the modes named after the devices.

    Raise NotAvailable for a device that this machine lacks. Exceptions of a plug-in propagate.
    """
    for device in sorted(set(devices)):
        kind, numbered, _ = device.partition(":")
        if kind not in HOST and kind in registry.names():
            require_here(ModeSpec(name=kind, base=kind, device=device if numbered else None))


def on_own_device(spec: ModeSpec, local_rank: int) -> ModeSpec:
    """Return the mode of one rank, on the rank's own accelerator if there are several."""
    device = spec.accelerator
    if device is None or ":" in device:
        return spec
    try:
        require_device(device)
        count = torch.get_device_module(device).device_count()
    except (NotAvailable, AttributeError, RuntimeError):
        return spec  # the mode itself says what is missing
    return replace(spec, device=f"{device}:{local_rank % count}") if count > 1 else spec
