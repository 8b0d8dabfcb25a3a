"""What a device tells of its work: the profiler's activities, a wait until all is done, and its memory.

Verified on torch 2.13.0 (CPU, and a device of PrivateUse1); the names are those of torch 2.6 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from .presence import private

MEMORY: Mapping[str, tuple[str, ...]] = {
    "allocated": ("memory_allocated", "current_allocated_memory"),
    "allocated_peak": ("max_memory_allocated",),
    "reserved": ("memory_reserved", "driver_allocated_memory"),
    "reserved_peak": ("max_memory_reserved",),
}
"""The readings of a device's memory, in bytes, and the functions that give them; the second ones are those of mps."""

NO_DEVICE = ("cpu", "lazy", "xla", "meta")
"""Device types without a queue of their own that this process could ask or wait for."""


def kind_of_device(device: str) -> str:
    """`cuda` of `cuda:0`."""
    return device.partition(":")[0]


def is_accelerator(device: str) -> bool:
    """Whether ops on the device run apart from the host. A name that torch does not know is no device."""
    if kind_of_device(device) in NO_DEVICE:
        return False
    try:
        return torch.device(device).type == kind_of_device(device)
    except RuntimeError:
        return False


def device_activity(device: str) -> Any | None:
    """The profiler's activity of an accelerator; None where torch's profiler has none for it."""
    kinds, kind = torch.profiler.ProfilerActivity, kind_of_device(device)
    name = "PrivateUse1" if kind == private("torch._C", "_get_privateuse1_backend_name")() else kind.upper()
    wanted = getattr(kinds, name, None)
    return wanted if is_accelerator(device) and wanted in torch.profiler.supported_activities() else None


def lacks_times(device: str) -> str:
    """Why torch's profiler has no times of an accelerator, "" where it has."""
    if device_activity(device) is not None:
        return ""
    kind, profiler = kind_of_device(device), f"the profiler of torch {torch.__version__}"
    if kind == private("torch._C", "_get_privateuse1_backend_name")():
        return f"the plug-in of {kind} tells {profiler} nothing: it registers no activity profiler"
    return f"{profiler} has no times of {kind}"


def wait_for_device(device: str) -> None:
    """Wait until the devices of a kind have done all that this process gave them.

    What a kernel has raised comes out here. A device that nobody has used stays as it is.
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
    """The memory of a device now, and its peaks since the script began: what `MEMORY` lists and the device knows, and
    the device's number as `device`.

    The peaks are the script's own: they are read and never reset.
    """
    found: dict[str, int] = {}
    place = (device,) if ":" in device else ()
    for holder in _told_by(device):
        for what, names in MEMORY.items():
            read = next((one for name in names if (one := getattr(holder, name, None)) is not None), None)
            if what not in found and read is not None:
                with suppress(RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError):
                    found[what] = int(read(*place))
    number = torch.device(device).index if ":" in device else getattr(_module(device), "current_device", lambda: 0)()
    return {"device": int(number), **found} if found else {}


def _is_used(device: str) -> bool:
    """Whether this process has used an accelerator: what asks it for anything else would begin with it."""
    module = _module(device)
    return is_accelerator(device) and (not hasattr(module, "is_initialized") or bool(module.is_initialized()))


def _told_by(device: str) -> Iterator[Any]:
    """The modules that tell of the memory of an accelerator: its own, and what torch has for all of them."""
    if not _is_used(device):
        return
    yield _module(device)
    general = torch.accelerator
    here = general.current_accelerator()
    if here is not None and here.type == kind_of_device(device):
        yield general


def _module(device: str) -> Any:
    """`torch.cuda` for `cuda:0`, None where torch has no module for it."""
    return getattr(torch, kind_of_device(device), None)


def give_back_device_memory() -> None:
    """Have the allocators of devices give back what nothing holds any more: other processes may need it."""
    kind = torch.accelerator.current_accelerator()
    module = None if kind is None else _module(kind.type)
    if module is None or not hasattr(module, "empty_cache"):
        return
    if not hasattr(module, "is_initialized") or module.is_initialized():
        module.empty_cache()
