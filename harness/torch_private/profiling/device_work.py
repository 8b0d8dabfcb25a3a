"""A device's activities in the profiler, its memory, and the function that waits for its work.

Verified on torch 2.13.0 (CPU, and a device of PrivateUse1); the names are those of torch 2.6 to 2.13.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from ..presence import private

MEMORY: Mapping[str, tuple[str, ...]] = {
    "allocated": ("memory_allocated", "current_allocated_memory"),
    "allocated_peak": ("max_memory_allocated",),
    "reserved": ("memory_reserved", "driver_allocated_memory"),
    "reserved_peak": ("max_memory_reserved",),
}
"""The readings of a device's memory, in bytes, and the functions that return them. The second function of a reading is
that of mps."""

NO_DEVICE = ("cpu", "lazy", "xla", "meta")
"""Device types without a separate queue that this process could query or wait for."""


def kind_of_device(device: str) -> str:
    """Return the type of a device: `cuda` for `cuda:0`."""
    return device.partition(":")[0]


def is_accelerator(device: str) -> bool:
    """Return whether ops on the device run asynchronously to the host; False for a name that torch does not know."""
    if kind_of_device(device) in NO_DEVICE:
        return False
    try:
        return torch.device(device).type == kind_of_device(device)
    except RuntimeError:
        return False


def device_activity(device: str) -> Any | None:
    """Return the profiler's activity for an accelerator; None if torch's profiler has no such activity."""
    kinds, kind = torch.profiler.ProfilerActivity, kind_of_device(device)
    name = "PrivateUse1" if kind == private("torch._C", "_get_privateuse1_backend_name")() else kind.upper()
    wanted = getattr(kinds, name, None)
    return wanted if is_accelerator(device) and wanted in torch.profiler.supported_activities() else None


def lacks_times(device: str) -> str:
    """Return the reason why torch's profiler reports no times for an accelerator, "" if it reports them."""
    if device_activity(device) is not None:
        return ""
    kind, profiler = kind_of_device(device), f"the profiler of torch {torch.__version__}"
    if kind == private("torch._C", "_get_privateuse1_backend_name")():
        return f"the plug-in of {kind} reports nothing to {profiler}: it registers no activity profiler"
    return f"{profiler} reports no times for {kind}"


def wait_for_device(device: str) -> None:
    """Wait until the devices of a kind have finished all the work of this process.

    An error that a kernel raised surfaces in this call. An unused device is not initialised.
    """
    module = _module(device)
    if not _is_used(device) or not hasattr(module, "synchronize"):
        return
    module.synchronize()  # the current device
    if hasattr(module, "memory_reserved") and hasattr(module, "device_count"):
        for number in range(module.device_count()):
            if module.memory_reserved(number):
                module.synchronize(number)


def memory_of(device: str) -> dict[str, int]:
    """Return the entries of `MEMORY` that a device reports: its memory now, and its peaks since the script began.

    The entry `device` is the device's number. The peaks belong to the script: they are read and never reset.
    """
    readings: dict[str, int] = {}
    place = (device,) if ":" in device else ()
    for holder in _memory_modules(device):
        for reading, names in MEMORY.items():
            read = next((method for name in names if (method := getattr(holder, name, None)) is not None), None)
            if reading not in readings and read is not None:
                with suppress(RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError):
                    readings[reading] = int(read(*place))
    number = torch.device(device).index if ":" in device else getattr(_module(device), "current_device", lambda: 0)()
    return {"device": int(number), **readings} if readings else {}


def _is_used(device: str) -> bool:
    """Return whether this process has used an accelerator, without initialising it."""
    module = _module(device)
    return is_accelerator(device) and (not hasattr(module, "is_initialized") or bool(module.is_initialized()))


def _memory_modules(device: str) -> Iterator[Any]:
    """Yield the modules that report the memory of an accelerator: the accelerator's own, and torch's general one."""
    if not _is_used(device):
        return
    yield _module(device)
    general = torch.accelerator
    current = general.current_accelerator()
    if current is not None and current.type == kind_of_device(device):
        yield general


def _module(device: str) -> Any:
    """Return torch's module for a device, such as `torch.cuda` for `cuda:0`; None where torch has none."""
    return getattr(torch, kind_of_device(device), None)


def give_back_memory() -> None:
    """Return freed memory to the system and the device: otherwise, allocators would keep it for later requests."""
    gc.collect()
    kind = torch.accelerator.current_accelerator()
    module: Any = None if kind is None else _module(kind.type)
    if hasattr(module, "empty_cache") and (not hasattr(module, "is_initialized") or module.is_initialized()):
        module.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
