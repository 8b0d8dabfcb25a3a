"""What `torch.standin` is: the functions that torch and scripts expect of a device, under the names of `torch.cuda`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple

import torch

from . import _device

Place = torch.device | str | int | None

_initialized = True
"""Torch asks for this before it keeps states of random numbers."""


class Copies(NamedTuple):
    """Copies between the host and the device so far."""

    to_device: int
    to_host: int
    bytes: int


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return bool(_device.is_initialized())


def _is_in_bad_fork() -> bool:
    return bool(_device.is_in_bad_fork())


def _lazy_init() -> None:
    """Do nothing: the device begins with the first tensor."""


def device_count() -> int:
    return int(_device.device_count())


def current_device() -> int:
    return int(_device.current_device())


def set_device(place: Place) -> None:
    _device.set_device(_index(place))


class device:
    """A context in which a device is the current one."""

    def __init__(self, place: Place) -> None:
        self.index = _index(place)
        self._before = -1

    def __enter__(self) -> None:
        self._before = current_device()
        _device.set_device(self.index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _device.set_device(self._before)


Stream = torch.Stream


def Event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
    """Return a mark between the kernels, with the time at which the device comes to it.

    A function, as torch compares its own events only.
    """
    return torch.Event("standin", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(place: Place = None) -> torch.Stream:
    """Return the only stream of a device."""
    return torch.accelerator.current_stream(_index(place))


default_stream = current_stream


def set_stream(stream: torch.Stream) -> None:
    """Do nothing: a device has one stream."""


def stream(stream: torch.Stream | None) -> AbstractContextManager[None]:
    """Return a context that changes nothing: a device has one stream."""
    return nullcontext()


def synchronize(place: Place = None) -> None:
    """Run all that was launched, and raise what a kernel raised."""
    _device.synchronize()


def launches() -> int:
    """Return how many kernels were launched."""
    return int(_device.counts()[0])


def copies() -> Copies:
    return Copies(*_device.counts()[1:])


def manual_seed(seed: int) -> None:
    _device.seed(current_device(), seed % 2**64)


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _device.seed(index, seed % 2**64)


def seed() -> None:
    manual_seed(torch.Generator().seed())


def seed_all() -> None:
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    return int(_device.seed_of(current_device()))


def get_rng_state(place: Place = "standin") -> torch.Tensor:
    return torch.frombuffer(bytearray(_device.state_of(_index(place))), dtype=torch.uint8)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(state: torch.Tensor, place: Place = "standin") -> None:
    _device.set_state(_index(place), state.cpu().numpy().tobytes())


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    for index, state in enumerate(states):
        set_rng_state(state, index)


def memory_stats(place: Place = None) -> Any:
    return torch.accelerator.memory_stats(_index(place))


def memory_allocated(place: Place = None) -> int:
    return torch.accelerator.memory_allocated(_index(place))


def max_memory_allocated(place: Place = None) -> int:
    return torch.accelerator.max_memory_allocated(_index(place))


def memory_reserved(place: Place = None) -> int:
    return torch.accelerator.memory_reserved(_index(place))


def max_memory_reserved(place: Place = None) -> int:
    return torch.accelerator.max_memory_reserved(_index(place))


def reset_peak_memory_stats(place: Place = None) -> None:
    torch.accelerator.reset_peak_memory_stats(_index(place))


def empty_cache() -> None:
    torch.accelerator.empty_cache()


def mem_get_info(place: Place = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device."""
    return torch.accelerator.get_memory_info(_index(place))


class DeviceProperties(NamedTuple):
    name: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int


def get_device_properties(place: Place = None) -> DeviceProperties:
    return DeviceProperties(get_device_name(place), mem_get_info(place)[1], torch.get_num_threads(), 1, 0)


def get_device_name(place: Place = None) -> str:
    _index(place)
    return "Stand-in"


def get_device_capability(place: Place = None) -> tuple[int, int]:
    return get_device_properties(place)[3:5]


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    return True


def _index(place: Place) -> int:
    if isinstance(place, int):
        return place
    index = None if place is None else torch.device(place).index
    return current_device() if index is None else index
