"""Replacements of the modules of `torch_xla`, for a script that imports them in a mode whose device is not xla.

The modules provide the part of torch_xla's API that training scripts use. `xla_functions` implements this part.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...torch_private.patches import Undo
from ..understood import ScriptNotes
from .xla_functions import Loader, ModelWrapper, Rate, SerialExecutor, Span, XlaFunctions, span_of

PACKAGE = "torch_xla"

NEWEST_KNOWN = "2.9.0"
"""The version that the stand-in reports. Scripts use it to choose between the names of older and newer versions."""

NOTE = (
    "torch_xla is replaced on {device}: xla_device() returns this device, and mark_step() and sync() run the script's "
    "closures"
)


class XlaStandIns:
    """Provides modules under torch_xla's names, from `install` to `close`. `cut` is the mode's mark_step."""

    def __init__(self, device: str, notes: ScriptNotes, cut: Callable[[], None] = lambda: None) -> None:
        self._device = device
        self._notes = notes
        self._cut = cut
        self._undo: list[Undo] = []

    def install(self) -> None:
        # The whole package is replaced: any part of the real package would register its device and claim torch's names.
        before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
        modules = modules_of(XlaFunctions(self._device, self._cut), self._device)
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


class StandIn(types.ModuleType):
    """A module of the stand-in. The error for a name that it lacks states the mode's device."""

    def __init__(self, name: str, device: str, names: Mapping[str, Any]) -> None:
        super().__init__(name, "The replacement of torch_xla in a mode that has a different device.")
        self.__path__: list[str] = []
        self.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
        self._of = device
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.__name__}.{name} has no replacement on {self._of}; run the script only in mode xla, "
            "or skip this call in the other modes"
        )


def modules_of(functions: XlaFunctions, device: str) -> dict[str, types.ModuleType]:
    """Return the modules by their full names. Each module is also an attribute of its parent module."""
    contents: dict[str, Mapping[str, Any]] = {
        "": _top(functions),
        "core": {},
        "core.xla_model": _xla_model(functions),
        "debug": {},
        "debug.metrics": METRICS,
        "debug.profiler": {**PROFILER, "StepTrace": functions.step_trace},
        "distributed": {},
        "distributed.parallel_loader": dict.fromkeys(
            ("MpDeviceLoader", "ParallelLoader"), functools.partial(Loader, functions)
        ),
        "distributed.xla_multiprocessing": {
            "spawn": functions.launch,
            "MpModelWrapper": ModelWrapper,
            "MpSerialExecutor": SerialExecutor,
        },
        "runtime": RUNTIME,
        "amp": {"autocast": functions.autocast, "GradScaler": functools.partial(torch.amp.GradScaler, device)},
        "amp.syncfree": {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW},
        "experimental": {"eager_mode": _nothing},
    }
    modules: dict[str, types.ModuleType] = {}
    for path, names in contents.items():
        name = f"{PACKAGE}.{path}" if path else PACKAGE
        modules[name] = StandIn(name, device, names)
        above, _, last = name.rpartition(".")
        if above:
            setattr(modules[above], last, modules[name])
    return modules


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


_nothing: Callable[..., None] = _returns(None)
_empty: Callable[..., list[Any]] = lambda *_, **__: []
_always_0, _always_1, _no, _yes = _returns(0), _returns(1), _returns(False), _returns(True)

RUNTIME: Mapping[str, Any] = {
    **dict.fromkeys(("global_ordinal", "local_ordinal", "process_index", "host_index"), _always_0),
    **dict.fromkeys(("world_size", "process_count", "local_process_count", "global_device_count"), _always_1),
    **dict.fromkeys(("local_device_count", "addressable_device_count", "global_runtime_device_count"), _always_1),
    **dict.fromkeys(("initialize_cache", "set_device_type"), _nothing),
    "device_type": lambda: "CPU",
    "is_spmd": _no,
    "using_pjrt": _yes,
    "is_bf16_supported": _yes,
}
METRICS: Mapping[str, Any] = {
    **dict.fromkeys(("counter_names", "metric_names", "executed_fallback_ops"), _empty),
    **dict.fromkeys(("counter_value", "metric_data"), _nothing),
    **dict.fromkeys(("clear_counters", "clear_metrics", "clear_all"), _nothing),
    **dict.fromkeys(("metrics_report", "short_metrics_report"), _returns("")),
}
PROFILER: Mapping[str, Any] = {
    **dict.fromkeys(("start_server", "trace", "trace_detached", "start_trace", "stop_trace"), _nothing),
    "Trace": Span,
    "trace_me": span_of,
}


def _top(functions: XlaFunctions) -> Mapping[str, Any]:
    return {
        "__version__": NEWEST_KNOWN,
        "device": functions.device,
        "devices": functions.devices,
        "real_devices": functions.device_names,
        "device_count": _always_1,
        "sync": functions.sync,
        "step": functions.step,
        "compile": functions.compile,
        "manual_seed": functions.set_rng_state,
        "launch": functions.launch,
    }


def _xla_model(functions: XlaFunctions) -> Mapping[str, Any]:
    return {
        **dict.fromkeys(("get_ordinal", "get_local_ordinal"), _always_0),
        **dict.fromkeys(("wait_device_ops", "unlazy", "reduce_gradients", "broadcast_master_param"), _nothing),
        **dict.fromkeys(("optimization_barrier_", "set_replication"), _nothing),
        "mark_step": functions.sync,
        "xla_device": functions.device,
        "get_xla_supported_devices": functions.device_names,
        "xla_real_devices": functions.device_names,
        "xla_device_hw": lambda device=None: "CPU",
        "is_xla_tensor": functions.is_xla_tensor,
        "is_master_ordinal": _yes,
        "master_print": lambda *values, fd=None, local=False, flush=False: print(*values, file=fd, flush=flush),
        "xrt_world_size": _always_1,
        "add_step_closure": functions.add_step_closure,
        "optimizer_step": functions.optimizer_step,
        "all_reduce": functions.all_reduce,
        "rendezvous": _empty,
        "mesh_reduce": lambda tag, data, reduce_fn: reduce_fn([data]),
        "do_on_ordinals": lambda target, data=(), ordinals=(0,): target(*data),
        "save": functions.save,
        "send_cpu_data_to_device": functions.send,
        "set_rng_state": functions.set_rng_state,
        "get_rng_state": functions.get_rng_state,
        "fork_rng": functions.fork_rng,
        "get_memory_info": functions.memory,
        "RateTracker": Rate,
        **{f"REDUCE_{kind.upper()}": kind for kind in ("sum", "mul", "and", "or", "min", "max")},
    }
