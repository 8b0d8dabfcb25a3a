"""Accelerator memory that a worker does not need is moved to the host while other processes use the device."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import torch

from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..torch_private.profiling.device_work import is_accelerator, kind_of_device, memory_of

LEAST = 1 << 20
"""The least size in bytes that is worth copying to the host and back."""


class ParkedMemory:
    """Storages of an ended training run that are on the CPU between `park` and `restore`.

    Code of the script that runs at exit finds its tensors unchanged.
    """

    def __init__(self) -> None:
        self._values: list[tuple[torch.UntypedStorage, torch.Tensor]] = []

    def park(self, tensors: Iterable[torch.Tensor]) -> None:
        """Move the values of these tensors from an accelerator to the host. A storage that cannot be moved stays."""
        storages = {}
        for tensor in tensors:
            with suppress(RuntimeError, NotImplementedError):  # a sparse tensor, or one of a tensor subclass
                if is_accelerator(tensor.device.type):
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage
        if sum(storage.nbytes() for storage in storages.values()) < LEAST:
            return
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            for storage in storages.values():
                with suppress(RuntimeError, NotImplementedError):
                    value = _bytes_of(storage).cpu()
                    storage.resize_(0)
                    self._values.append((storage, value))

    def restore(self) -> None:
        """Move everything back. Raises torch.OutOfMemoryError if the device has no room for it."""
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            while self._values:
                storage, value = self._values[-1]
                storage.resize_(value.numel())
                _bytes_of(storage).copy_(value)
                self._values.pop()


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    view = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return view.set_(storage, 0, (storage.nbytes(),), (1,))


def device_memory(device: str) -> dict[str, int]:
    """Return a device's memory in bytes: allocated and reserved by this process, the peaks of both, and the `total`.

    Return an empty dictionary if the device does not report its memory.
    """
    memory = memory_of(device)
    module = getattr(torch, kind_of_device(device), None)
    if memory and module is not None and hasattr(module, "mem_get_info"):
        with suppress(RuntimeError, AssertionError, TypeError, NotImplementedError):
            memory["total"] = int(module.mem_get_info(device)[1])
    return memory
