"""Check that torch has a device on this machine."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import torch

from ..errors import NotAvailable
from ..records.modes.mode_registry import registry


def require_device(device: str) -> None:
    """Load the module that a device needs. The mode with the device's name states the module.

    Raise NotAvailable if torch has no such device on this machine.
    """
    kind, _, number = device.partition(":")
    if kind in ("cpu", "lazy"):
        return
    if not hasattr(torch, kind) and (name := registry.module_of(kind)):
        try:
            importlib.import_module(name)
        except ImportError as error:
            package = name.partition(".")[0]
            raise NotAvailable(f"device {device!r}", str(error), f"install the package {package}") from error
    try:
        module = getattr(torch, kind, None)
        is_present = module is not None and module.is_available()
    except (AttributeError, RuntimeError) as error:
        raise NotAvailable(f"device {device!r}", str(error).splitlines()[0]) from error
    if module is None or not is_present:
        raise NotAvailable(f"device {device!r}", *_absent(kind))
    count = module.device_count()
    if number and int(number) >= count:
        devices = ", ".join(f"{kind}:{index}" for index in range(count))
        raise NotAvailable(f"device {device!r}", f"torch finds {devices}", "name one of these")


DRIVER = Path("/proc/driver/nvidia/version")
"""The file in which the driver of NVIDIA's GPUs states its version."""


def _absent(kind: str) -> tuple[str, str]:
    """Return the reason why torch finds no device of a kind, and the remedy."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if kind == "cuda" and not torch.backends.cuda.is_built() and DRIVER.exists():
        why = f"torch {torch.__version__} is built without CUDA, on a machine that has an NVIDIA driver"
        return why, "install a build of torch with CUDA"
    if kind == "cuda" and hidden is not None and hidden.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden} hides all CUDA devices", "unset it, or name a device in it"
    why = f"torch {torch.__version__} finds none on this machine"
    return why, f"install the torch build or plug-in for {kind} on a machine that has the device"
