"""What the lazy core does: the cuts that are ordered, the copies that make others, its counters and its own
report.

A copy of a lazy tensor to the CPU is one op (`aten::_to_copy`), whoever asks for it: a script that reads a
value, and the core itself, which copies the arguments of an op that it has no kernel for, runs the op on the
CPU and copies the results back. Verified on torch 2.13.0."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from .dispatching import Overrides, original_kernel
from .lazy import LAZY_KEY, sync_reason
from .patches import Patches, Undo
from .presence import private, require

COMPILED, FOUND = "UncachedCompile", "CachedCompile"
"""The core's counters of graphs that it compiled, and that it had compiled before."""

MARK = "mark_step"

_SIZES = re.compile(r"Metric: TensorsGraphSize\n  TotalSamples: (\d+)\n  Accumulator: ([\d.]+)")


@dataclass(frozen=True, slots=True)
class ExecutedCut:
    """A pending graph that was ordered to be executed: `reason` is `mark_step`, or what `sync_lazy` was told.

    `began` is in seconds of the process's clock; after `scheduled` seconds the graph was traced, compiled
    where it was new and handed over, and after `executed` more it had been executed. `counted` is what the
    counters of graphs grew by."""

    reason: str
    began: float
    scheduled: float
    executed: float
    counted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between a lazy tensor and the CPU, which may have executed a graph (`counted`, as in Cut).

    `fell_back` has the `aten::` counters that grew since the last copy: what the core now runs on the CPU.
    `returns` says that it hands a result of such an op back, `own` that it is none of the training's.
    `caller` is the Python frame that led to it, of a backward the frame that waits for it."""

    to_cpu: bool
    bytes: int
    began: float
    seconds: float
    counted: Mapping[str, int]
    fell_back: Sequence[str]
    returns: bool
    own: bool
    caller: Any


def watch_lazy_cuts(seen: Callable[[ExecutedCut], None]) -> Undo:
    """Have `seen` told of each mark_step and sync. A graph is waited for, so that its execution can be
    timed."""
    core = private("torch._C", "_lazy")
    for name in ("_mark_step", "_sync_multi", "_wait_device_ops"):
        require(core, name)

    def timed(reason: str, schedule: Callable[[], None]) -> None:
        # The core hands a graph over and goes on; `_wait_device_ops` returns once it has been executed.
        before, began = _executions(), perf_counter()
        schedule()
        scheduled = perf_counter()
        core._wait_device_ops([])
        executed = perf_counter()
        counted = grown(before, _executions())
        seen(ExecutedCut(reason, began, scheduled - began, executed - scheduled, counted))

    def marking(mark: Callable[..., None]) -> Callable[..., None]:
        def marked(device: str = "", devices: Sequence[str] = (), wait: bool = True) -> None:
            timed(MARK, lambda: mark(device, list(devices), False))

        return marked

    def syncing(sync: Callable[..., None]) -> Callable[..., None]:
        def synced(
            tensors: Sequence[torch.Tensor],
            devices: Sequence[str],
            wait: bool = True,
            sync_ltc_data: bool = True,
        ) -> None:
            timed(sync_reason(), lambda: sync(list(tensors), list(devices), False, sync_ltc_data))

        return synced

    with Patches("the work of the lazy core") as patches:
        patches.wrap(core, "_mark_step", marking)
        patches.wrap(core, "_sync_multi", syncing)
    return patches.undo


def watch_lazy_copies(seen: Callable[[Copy], None], is_own: Callable[[Any], bool]) -> Undo:
    """Have `seen` told of each copy between a lazy tensor and the CPU. One of which `is_own` says, of the
    Python frame that led to it, that it is none of the training's, is only told of where it has executed a
    graph.

    Only the kernel of this one op is replaced, by one that calls it: no node of a graph changes.
    """
    operation = torch.ops.aten._to_copy.default
    kernel = original_kernel(operation, LAZY_KEY)
    before = _fallbacks()
    overrides = Overrides()

    def copied(tensor: torch.Tensor, **kwargs: Any) -> Any:
        nonlocal before
        device = kwargs.get("device")
        caller = sys._getframe().f_back
        if tensor.device.type == "lazy" and (device is None or device.type == "lazy"):
            return kernel(tensor, **kwargs)
        own = caller is not None and is_own(caller)
        to_cpu = tensor.device.type == "lazy"
        fell_back: list[str] = []
        if to_cpu and not own:
            now = _fallbacks()
            fell_back, before = list(grown(before, now)), now
        executions, began = _executions(), perf_counter()
        made = kernel(tensor, **kwargs)
        seconds, counted = perf_counter() - began, grown(executions, _executions())
        if own and not counted:
            return made
        returns = not to_cpu and "layout" not in kwargs
        size = made.numel() * made.element_size()
        if caller is None:  # a backward runs on a thread that has no frame of the script's
            caller = sys._current_frames().get(threading.main_thread().ident or 0)
        seen(Copy(to_cpu, size, began, seconds, counted, fell_back, returns, own, caller))
        return made

    overrides.replace(operation, LAZY_KEY, copied)
    return overrides.close


def _fallbacks() -> dict[str, int]:
    """How often each op has run on the CPU."""
    value = private("torch._C._lazy", "_counter_value")
    names = private("torch._C._lazy", "_counter_names")()
    return {name: value(name) or 0 for name in names if name.startswith("aten::")}


def _executions() -> dict[str, int]:
    value = private("torch._C._lazy", "_counter_value")
    return {name: value(name) or 0 for name in (COMPILED, FOUND)}


def grown(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """What each counter has grown by, of those that have."""
    return {name: value - before.get(name, 0) for name, value in now.items() if value != before.get(name, 0)}


def lazy_graph_sizes() -> tuple[int, float]:
    """How many graphs the core has executed since the process began, and the nodes of all of them."""
    found = _SIZES.search(lazy_report())
    return (int(found[1]), float(found[2])) if found else (0, 0.0)


def lazy_report() -> str:
    """The core's own report of what it has measured."""
    return str(private("torch._C._lazy", "_metrics_report")())


# The lazy core asked what it makes of an op: counters of its fallbacks, and the IR of pending tensors.


def lazy_counter(name: str) -> int:
    """What the lazy core has counted under a name; `aten::lerp.Scalar` are executions of that op on the CPU."""
    value: int | None = private("torch._lazy.metrics", "counter_value")(name)
    return value or 0


def lazy_text(tensors: Sequence[torch.Tensor]) -> str:
    """The IR of the graph that is pending for these lazy tensors, which stays as it is."""
    return str(private("torch._C._lazy", "_get_tensors_text")(functional_tensors(tensors)))


def lower_lazy(tensors: Sequence[torch.Tensor]) -> None:
    """Have the lazy core lower the graph that is pending for these lazy tensors, and execute nothing.

    Raises RuntimeError where its backend has no lowering for a node.
    """
    private("torch._C._lazy", "_get_tensors_backend")(functional_tensors(tensors))


def functional_tensors(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors as a script has them: within a kernel of the lazy core they lack the wrapper of
    functionalization."""
    wrapped = private("torch", "_is_functional_tensor")
    wrap = private("torch", "_to_functional_tensor")
    return [one if wrapped(one) else wrap(one) for one in tensors]


@contextmanager
def lazy_without_execution() -> Iterator[None]:
    """Within the context the lazy core builds graphs and executes none: what is read from it is zeros.

    Raises NotAvailable.
    """
    core: Any = importlib.import_module("torch._C._lazy")
    for name in ("_mark_step", "_sync_multi"):
        require(core, name)
    keys = private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), LAZY_KEY))

    def nothing(*args: Any, **kwargs: Any) -> None:
        """Execute nothing."""

    def to_copy(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(tensor: torch.Tensor, **options: Any) -> Any:
            wanted = options.get("device")
            if tensor.device.type == "lazy" and wanted is not None and torch.device(wanted).type != "lazy":
                return torch.zeros(tensor.shape, dtype=options.get("dtype") or tensor.dtype, device=wanted)
            return original(keys, tensor, **options)

        return copy

    def copy_from(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(source: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
            if source.device.type == "lazy" and target.device.type != "lazy":
                return target.resize_(source.shape).zero_()
            return original(keys, source, target, *args)

        return copy

    with Patches("a lazy core that executes nothing") as patches:
        for name in ("_mark_step", "_sync_multi"):
            patches.wrap(core, name, lambda before: nothing)
        overrides = Overrides()
        patches.also(overrides.close)
        # All ways by which a value leaves the core: a copy that a script asks for, and those of its own fallbacks.
        kernels = {"_to_copy": to_copy, "_copy_from": copy_from, "_copy_from_and_resize": copy_from}
        for name, replacement in kernels.items():
            operation = getattr(torch.ops.aten, name).default
            original = private("torch.library", "get_kernel")(operation, LAZY_KEY)
            overrides.replace(operation, LAZY_KEY, replacement(original.call_boxed))
    try:
        yield
    finally:
        patches.undo()
