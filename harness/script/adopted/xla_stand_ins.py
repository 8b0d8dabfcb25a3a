"""`torch_xla` for a script that imports it, in a mode with another device: one process, one device.

It implements the part of torch_xla's API that trainings use. Functions that move a tensor move it to the mode's device.
Functions that cut or wait run the closures that the script has deferred until then. Functions that ask for other
processes find none.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from ...torch_private.patches import Undo
from ..understood import ScriptNotes

PACKAGE = "torch_xla"

NEWEST_KNOWN = "2.9.0"
"""Version that the stand-in reports; scripts choose between older and newer names by it."""

NOTE = "torch_xla represents the device {device}: xla_device() returns it, mark_step and sync run the script's closures"


class XlaStandIns:
    """Provides modules under torch_xla's names, from `install` to `close`. `cut` is the mode's mark_step."""

    def __init__(self, device: str, notes: ScriptNotes, cut: Callable[[], None] = lambda: None) -> None:
        self._device = device
        self._notes = notes
        self._cut = cut
        self._undo: list[Undo] = []

    def install(self) -> None:
        words = Words(self._device, self._cut)
        # The whole package is replaced: a part of the real one would register its device and claim torch's names.
        before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
        modules = modules_of(words, self._device)
        for name in before:
            del sys.modules[name]
        sys.modules.update(modules)
        self._notes.note("device", NOTE.format(device=self._device))

        def put_back() -> None:
            for name in modules:
                sys.modules.pop(name, None)
            sys.modules.update(before)

        self._undo.append(put_back)

    def close(self) -> None:
        while self._undo:
            self._undo.pop()()


class Words:
    """The implementations of torch_xla's functions on another device."""

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
        """Implement `xp.StepTrace`: a named block, at whose end a graph is cut."""
        with Span(name):
            try:
                yield
            finally:
                self.sync()

    def compile(self, f: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
        """Wrap a function so that it runs within a step. Without a function, return the step's context."""
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
        """Reduce within one process: torch_xla clones a single tensor, leaves several unchanged, and scales none."""
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
        """Return a disabled autocast: torch_xla ignores its own on every platform but TPU and NEURON."""
        return torch.autocast("cpu", enabled=False)

    def launch(self, fn: Callable[..., Any], args: Sequence[Any] = (), *_: Any, **__: Any) -> None:
        fn(0, *args)


class Loader:
    """`MpDeviceLoader`: a loader whose batches are on the device.

    It cuts the last graph when the next batch is requested.
    """

    def __init__(self, words: Words, loader: Any, *_: Any, **__: Any) -> None:
        self._words = words
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._words.sync()
            yield self._words.send(batch, None)
        self._words.sync()

    def __len__(self) -> int:
        return len(self._loader)

    def per_device_loader(self, device: Any = None) -> Loader:
        return self

    def close(self) -> None: ...


class Rate:
    """`RateTracker`: counts per second."""

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


def _span_of(scope: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator like `xp.trace_me`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with Span(scope):
                return function(*args, **kwargs)

        return called

    return decorate


class StandIn(types.ModuleType):
    """A module of the stand-in. Its error for a missing name states the mode's device."""

    def __init__(self, name: str, device: str, names: Mapping[str, Any]) -> None:
        super().__init__(name, "The replacement of torch_xla in a mode that has another device.")
        self.__path__: list[str] = []
        self.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
        self._of = device
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.__name__}.{name} has no replacement on {self._of}; run the script in mode xla "
            "alone, or leave the call out in this mode"
        )


def modules_of(words: Words, device: str) -> dict[str, types.ModuleType]:
    """Return the modules by their full names; each is an attribute of its parent module."""
    nothing = lambda *_, **__: None
    always_0, always_1 = (lambda *_, **__: 0), (lambda *_, **__: 1)
    no, yes = (lambda *_, **__: False), (lambda *_, **__: True)
    empty: Callable[..., list[Any]] = lambda *_, **__: []
    optim = torch.optim
    runtime = {
        **dict.fromkeys(("global_ordinal", "local_ordinal", "process_index", "host_index"), always_0),
        **dict.fromkeys(("world_size", "process_count", "local_process_count", "global_device_count"), always_1),
        **dict.fromkeys(("local_device_count", "addressable_device_count", "global_runtime_device_count"), always_1),
        **dict.fromkeys(("initialize_cache", "set_device_type"), nothing),
        "device_type": lambda: "CPU",
        "is_spmd": no,
        "using_pjrt": yes,
        "is_bf16_supported": yes,
    }
    model = {
        **dict.fromkeys(("mark_step",), words.sync),
        **dict.fromkeys(("get_ordinal", "get_local_ordinal"), always_0),
        **dict.fromkeys(("wait_device_ops", "unlazy", "reduce_gradients", "broadcast_master_param"), nothing),
        **dict.fromkeys(("optimization_barrier_", "set_replication"), nothing),
        "xla_device": words.device,
        "get_xla_supported_devices": words.device_names,
        "xla_real_devices": words.device_names,
        "xla_device_hw": lambda device=None: "CPU",
        "is_xla_tensor": words.is_xla_tensor,
        "is_master_ordinal": yes,
        "master_print": lambda *values, fd=None, local=False, flush=False: print(*values, file=fd, flush=flush),
        "xrt_world_size": always_1,
        "add_step_closure": words.add_step_closure,
        "optimizer_step": words.optimizer_step,
        "all_reduce": words.all_reduce,
        "rendezvous": empty,
        "mesh_reduce": lambda tag, data, reduce_fn: reduce_fn([data]),
        "do_on_ordinals": lambda target, data=(), ordinals=(0,): target(*data),
        "save": words.save,
        "send_cpu_data_to_device": words.send,
        "set_rng_state": words.set_rng_state,
        "get_rng_state": words.get_rng_state,
        "fork_rng": words.fork_rng,
        "get_memory_info": words.memory,
        "RateTracker": Rate,
        **{f"REDUCE_{kind.upper()}": kind for kind in ("sum", "mul", "and", "or", "min", "max")},
    }
    metrics = {
        **dict.fromkeys(("counter_names", "metric_names", "executed_fallback_ops"), empty),
        **dict.fromkeys(("counter_value", "metric_data"), nothing),
        **dict.fromkeys(("clear_counters", "clear_metrics", "clear_all"), nothing),
        **dict.fromkeys(("metrics_report", "short_metrics_report"), lambda *_, **__: ""),
    }
    profiler = {
        **dict.fromkeys(("start_server", "trace", "trace_detached", "start_trace", "stop_trace"), nothing),
        "Trace": Span,
        "StepTrace": words.step_trace,
        "trace_me": _span_of,
    }
    loaders = dict.fromkeys(("MpDeviceLoader", "ParallelLoader"), functools.partial(Loader, words))
    several = {"spawn": words.launch, "MpModelWrapper": _Wrapped, "MpSerialExecutor": _Serial}
    top = {
        "__version__": NEWEST_KNOWN,
        "device": words.device,
        "devices": words.devices,
        "real_devices": words.device_names,
        "device_count": always_1,
        "sync": words.sync,
        "step": words.step,
        "compile": words.compile,
        "manual_seed": words.set_rng_state,
        "launch": words.launch,
    }
    contents: dict[str, Mapping[str, Any]] = {
        "": top,
        "core": {},
        "core.xla_model": model,
        "debug": {},
        "debug.metrics": metrics,
        "debug.profiler": profiler,
        "distributed": {},
        "distributed.parallel_loader": loaders,
        "distributed.xla_multiprocessing": several,
        "runtime": runtime,
        "amp": {"autocast": words.autocast, "GradScaler": functools.partial(torch.amp.GradScaler, device)},
        "amp.syncfree": {"SGD": optim.SGD, "Adam": optim.Adam, "AdamW": optim.AdamW},
        "experimental": {"eager_mode": nothing},
    }
    modules: dict[str, types.ModuleType] = {}
    for path, names in contents.items():
        name = f"{PACKAGE}.{path}" if path else PACKAGE
        modules[name] = StandIn(name, device, names)
        above, _, last = name.rpartition(".")
        if above:
            setattr(modules[above], last, modules[name])
    return modules


class _Wrapped:
    """`MpModelWrapper`: a model that processes share."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def to(self, device: Any) -> torch.nn.Module:
        return self._model.to(device)


class _Serial:
    """`MpSerialExecutor`: runs one process after another."""

    def run(self, fn: Callable[[], Any]) -> Any:
        return fn()


def _moved(data: Any, device: str) -> Any:
    """Return nested lists, tuples and dictionaries with their tensors on a device."""
    if isinstance(data, torch.Tensor):
        return data.to(device)
    if isinstance(data, Mapping):
        return type(data)((key, _moved(value, device)) for key, value in data.items())  # type: ignore[call-arg]
    if isinstance(data, (list, tuple)):
        moved = [_moved(item, device) for item in data]
        return type(data)(*moved) if hasattr(data, "_fields") else type(data)(moved)
    return data
