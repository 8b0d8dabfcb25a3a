"""`torch.cuda` in a mode whose device is not CUDA: harmless answers to a script's questions about the CUDA device.

`torch.cuda.is_available()` and `torch.cuda.device_count()` still report the truth.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Self

import torch

from ...torch_private.patches import Patches
from ..understood import ScriptNotes

CAPABILITY = (8, 0)
"""The compute capability that is reported for the missing device. A script that checks the capability then chooses
bfloat16, which the CPU supports too."""

NOTHING_TO_DO = (
    "caching_allocator_delete",
    "empty_cache",
    "init",
    "ipc_collect",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_device",
    "set_per_process_memory_fraction",
    "set_stream",
    "set_sync_debug_mode",
    "synchronize",
)
ZERO = (
    "current_device",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
)
TENSOR_TYPES = (
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
)


class CudaStandIns:
    """Replaces the functions that need a driver, from `install` to `close`. Does nothing in a mode that runs on CUDA.

    In any other mode the functions are replaced even if the machine has a GPU, since that GPU must not be used.
    """

    def __init__(self, device: str, notes: ScriptNotes) -> None:
        self._device = device
        self._notes = notes
        self._patches = Patches("torch.cuda without CUDA")

    def install(self) -> None:
        if self._device.partition(":")[0] == "cuda":
            return
        answers: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(NOTHING_TO_DO, lambda *_, **__: None),
            **dict.fromkeys(ZERO, lambda *_, **__: 0),
            "current_stream": lambda *_, **__: Stream(),
            "default_stream": lambda *_, **__: Stream(),
            "get_device_capability": lambda *_, **__: CAPABILITY,
            "get_device_name": lambda *_, **__: self._properties().name,
            "get_device_properties": lambda *_, **__: self._properties(),
            "get_rng_state": lambda *_, **__: torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()],
            "initial_seed": torch.initial_seed,
            "mem_get_info": lambda *_, **__: _host_memory(),
            "memory_stats": lambda *_, **__: {},
            "memory_summary": lambda *_, **__: "",
            "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
            "set_rng_state_all": _set_rng_states,
            "stream": lambda stream=None: nullcontext(stream),
        }
        with self._patches:
            for name, answer in answers.items():
                self._replace(name, self._noted(name, answer))
            for name, kind in (("Event", Event), ("Stream", Stream), ("device", CurrentDevice)):
                self._replace(name, kind)
            for name in TENSOR_TYPES:
                self._replace(name, _tensor_type(name, self._device))
            self._replace_methods()

    def close(self) -> None:
        self._patches.undo()

    def _noted(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(torch.cuda, name, answer)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # While dynamo traces this function, the script is the caller. Otherwise torch itself may be the caller, for
            # example in a backend that compiles.
            if torch.compiler.is_dynamo_compiling():
                return answer(*args, **kwargs)
            if str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "torch":
                return original(*args, **kwargs)  # torch learns from the failure that there is no device
            self._notes.note("device", "the mode has no CUDA device: stand-ins answer the script's calls to torch.cuda")
            return answer(*args, **kwargs)

        return call

    def _replace(self, name: str, replacement: Any) -> None:
        original = getattr(torch.cuda, name, None)
        if original is None:
            return
        defined_in = sys.modules.get(getattr(original, "__module__", ""), torch.cuda)
        # `torch.cuda.memory_allocated`, for example, is defined in `torch.cuda.memory`. A script may import it from
        # either module.
        for module in {torch.cuda, defined_in}:
            if vars(module).get(name) is original:
                self._patches.replace(module, name, replacement)

    def _replace_methods(self) -> None:
        original, typed, device = torch.Tensor.record_stream, torch.Tensor.type, self._device

        @functools.wraps(original)
        def record_stream(tensor: torch.Tensor, stream: Any) -> None:
            if not isinstance(stream, Stream):
                original(tensor, stream)

        @functools.wraps(typed)
        def type_(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
            named = str(dtype) if isinstance(dtype, (str, type)) else ""
            if not named.startswith("torch.cuda."):
                return typed(tensor, dtype, *args, **kwargs)
            return tensor.to(device, getattr(torch, named.rpartition(".")[2]).dtype)

        self._patches.replace(torch.Tensor, "record_stream", record_stream)
        self._patches.replace(torch.Tensor, "type", type_)

    def _properties(self) -> SimpleNamespace:
        return SimpleNamespace(
            name=f"{self._device} in place of cuda",
            major=CAPABILITY[0],
            minor=CAPABILITY[1],
            total_memory=_host_memory()[1],
            multi_processor_count=os.cpu_count() or 1,
            warp_size=32,
            is_integrated=True,
            is_multi_gpu_board=False,
        )


class Event:
    """A moment in time. When the event is recorded, all earlier work has already been done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._recorded: float | None = None

    def record(self, stream: Any = None) -> None:
        self._recorded = time.perf_counter()

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds from this event to `later`. Raises RuntimeError if either was not recorded."""
        if self._recorded is None or later._recorded is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (later._recorded - self._recorded) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...


class Stream:
    """A queue that is always empty: all work that was put into it has already been done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.cuda_stream = 0

    def record_event(self, event: Event | None = None) -> Event:
        recorded = event if event is not None else Event()
        recorded.record()
        return recorded

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait_event(self, event: Event) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class CurrentDevice(AbstractContextManager[None]):
    """`with torch.cuda.device(0)`: a context that does not change the current device."""

    def __init__(self, device: Any) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _tensor_type(name: str, device: str) -> Any:
    """Return a type that replaces, for example, `torch.cuda.FloatTensor`, and creates tensors on `device`."""
    on_cpu = getattr(torch, name)
    kind_of_device = device.partition(":")[0]

    class TensorTypeOfDevice(type):
        def __str__(cls) -> str:
            return f"torch.cuda.{name}"

        def __instancecheck__(cls, value: object) -> bool:
            return (
                isinstance(value, torch.Tensor) and value.dtype == on_cpu.dtype and value.device.type == kind_of_device
            )

        def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
            tensor: torch.Tensor = on_cpu(*args, **kwargs)
            return tensor.to(device)

    return TensorTypeOfDevice(name, (), {"__module__": "torch.cuda", "dtype": on_cpu.dtype})


def _set_rng_states(states: Iterable[torch.Tensor]) -> None:
    for state in states:
        torch.set_rng_state(state)


def _host_memory() -> tuple[int, int]:
    """Return the free and total bytes of the machine's memory, or zeros if the system does not report them."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0, 0
