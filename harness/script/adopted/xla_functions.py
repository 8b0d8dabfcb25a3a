"""Replacements of torch_xla's functions, for training in one process on a device that is not an xla device.

Functions that move a tensor move it to the mode's device. Functions that cut the graph run the closures that the script
has deferred until then. Functions that ask for other processes find none.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


class XlaFunctions:
    """The functions that depend on the device, or act on the script's steps."""

    def __init__(self, device: str, cut: Callable[[], None]) -> None:
        self._device = device
        self._cut = cut
        self._closures: list[Callable[[], Any]] = []
        self._seed = 101  # torch_xla's initial seed

    def device(self, *_: Any, **__: Any) -> torch.device:
        return torch.device(self._device)

    def devices(self, *_: Any, **__: Any) -> list[torch.device]:
        return [self.device()]

    def device_names(self, *_: Any, **__: Any) -> list[str]:
        return [self._device]

    def is_xla_tensor(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self.device().type

    def add_step_closure(self, closure: Callable[..., Any], args: tuple[Any, ...] = (), *_: Any, **__: Any) -> None:
        self._closures.append(functools.partial(closure, *args))

    def sync(self, *_: Any, **__: Any) -> None:
        self._cut()
        closures, self._closures = self._closures, []
        for closure in closures:
            closure()

    @contextmanager
    def step(self) -> Iterator[None]:
        self.sync()
        try:
            yield
        finally:
            self.sync()

    @contextmanager
    def step_trace(self, name: str, **_: Any) -> Iterator[None]:
        """Implement `xp.StepTrace`: a named block at whose end the graph is cut."""
        with Span(name):
            try:
                yield
            finally:
                self.sync()

    def compile(self, f: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
        """Wrap a function so that it runs within the context of a step. Without a function, return the context."""
        if f is None:
            return self.step()
        function = f

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self.step():
                return function(*args, **kwargs)

        return called

    def optimizer_step(
        self,
        optimizer: Any,
        barrier: bool = False,
        optimizer_args: Mapping[str, Any] | None = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        loss = optimizer.step(**(optimizer_args or {}))
        if barrier:
            self.sync()
        return loss

    def all_reduce(self, reduce_type: str, inputs: Any, *_: Any, **__: Any) -> Any:
        """Reduce within one process as torch_xla does: clone a single tensor, leave a list unchanged, scale neither."""
        return inputs.clone() if isinstance(inputs, torch.Tensor) else inputs

    def save(self, data: Any, file_or_path: Any, *_: Any, **__: Any) -> None:
        torch.save(_moved(data, "cpu"), file_or_path)

    def send(self, data: Any, device: Any, *_: Any, **__: Any) -> Any:
        return _moved(data, self._device)

    def set_rng_state(self, seed: int, device: Any = None) -> None:
        """Set the seed of the xla device's own generator, without changing any CPU generator."""
        self._seed = seed

    def get_rng_state(self, device: Any = None) -> int:
        return self._seed

    @contextmanager
    def fork_rng(self, device: Any = None, enabled: bool = True) -> Iterator[None]:
        before = self._seed
        yield
        if enabled:
            self._seed = before

    def memory(self, device: Any = None) -> dict[str, int]:
        return {"bytes_used": 0, "bytes_limit": 0, "peak_bytes_used": 0}

    def autocast(self, device: Any = None, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        """Return a disabled autocast, since torch_xla ignores its own autocast on every platform but TPU and NEURON."""
        return torch.autocast("cpu", enabled=False)

    def launch(self, fn: Callable[..., Any], args: Sequence[Any] = (), *_: Any, **__: Any) -> None:
        fn(0, *args)


class Loader:
    """`MpDeviceLoader`: a loader that moves its batches to the device.

    It cuts the pending graph before it yields a batch, and after the last batch.
    """

    def __init__(self, functions: XlaFunctions, loader: Any, *_: Any, **__: Any) -> None:
        self._functions = functions
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._functions.sync()
            yield self._functions.send(batch, None)
        self._functions.sync()

    def __len__(self) -> int:
        return len(self._loader)

    def per_device_loader(self, device: Any = None) -> Loader:
        return self

    def close(self) -> None: ...


class Rate:
    """`RateTracker`: measures a rate in counts per second."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._began = time.time()
        self._count = 0.0

    def add(self, count: float) -> None:
        self._count += count

    def rate(self) -> float:
        return self._count / max(time.time() - self._began, 1e-9)

    global_rate = rate


class Span(torch.autograd.profiler.record_function):
    """`xp.Trace`: a named block that torch's own profiler sees."""

    def __init__(self, name: str, **_: Any) -> None:
        super().__init__(name)


def span_of(scope: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator like `xp.trace_me`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with Span(scope):
                return function(*args, **kwargs)

        return called

    return decorate


class ModelWrapper:
    """`MpModelWrapper`: a wrapper of a model that several processes share."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def to(self, device: Any) -> torch.nn.Module:
        return self._model.to(device)


class SerialExecutor:
    """`MpSerialExecutor`: runs a function in one process after the other; here, in the only process."""

    def run(self, fn: Callable[[], Any]) -> Any:
        return fn()


def _moved(data: Any, device: str) -> Any:
    """Return a tensor, or nested lists, tuples and dictionaries of tensors, on a device."""
    if isinstance(data, torch.Tensor):
        return data.to(device)
    if isinstance(data, Mapping):
        return type(data)((key, _moved(value, device)) for key, value in data.items())  # type: ignore[call-arg]
    if isinstance(data, (list, tuple)):
        moved = [_moved(item, device) for item in data]
        return type(data)(*moved) if hasattr(data, "_fields") else type(data)(moved)
    return data
