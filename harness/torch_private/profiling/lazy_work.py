"""The lazy core's work: its explicit cuts, the copies that cause further cuts, its counters and its own report.

A copy of a lazy tensor to the CPU is the same op (`aten::_to_copy`) for every caller. A script copies to read a value.
The core itself copies when an op has no kernel: it copies the arguments, runs the op on the CPU and copies the results
back. Verified on torch 2.13.0.
"""

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

from ..deferred.lazy import LAZY_KEY, sync_reason
from ..deferred.lazy_syncs import wait_for_lazy_core, wrap_lazy_syncs
from ..device_kernels import boxed_kernel
from ..patches import Patches, Undo
from ..presence import private, require
from ..registered_kernels import Overrides, original_kernel

COMPILED, FOUND = "UncachedCompile", "CachedCompile"
"""The core's counters of graphs that it compiled, and of graphs that were compiled already."""

MARK = "mark_step"

_SIZES = re.compile(r"Metric: TensorsGraphSize\n  TotalSamples: (\d+)\n  Accumulator: ([\d.]+)")


@dataclass(frozen=True, slots=True)
class ExecutedCut:
    """A pending graph that a mark_step or a sync executed.

    reason: `mark_step`, or the reason passed to `sync_lazy`
    began: the time of the call, in seconds of the process's clock
    scheduled: the seconds until the graph was traced, compiled if it was new, and handed over
    executed: the further seconds until it had been executed
    counted: the increases of the counters of graphs
    """

    reason: str
    began: float
    scheduled: float
    executed: float
    counted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between a lazy tensor and the CPU, which may have executed a graph.

    counted: the increases of the counters of graphs, as in `ExecutedCut`
    fell_back: the `aten::` counters that grew since the last copy; they name the ops that the core now runs on the CPU
    returns: whether the copy brings back a result of an op that ran on the CPU
    own: whether the copy is numdrift's, not the training's
    caller: the Python frame that led to the copy; in a backward, the frame that waits for the backward
    """

    to_cpu: bool
    bytes: int
    began: float
    seconds: float
    counted: Mapping[str, int]
    fell_back: Sequence[str]
    returns: bool
    own: bool
    caller: Any


def watch_lazy_cuts(show: Callable[[ExecutedCut], None]) -> Undo:
    """Report each mark_step and sync to `show`. Wait for each graph, to time its execution."""

    def timed(tensors: Sequence[torch.Tensor] | None, wait: bool, schedule: Callable[[bool], None]) -> None:
        reason = MARK if tensors is None else sync_reason()
        # The core hands a graph over and continues; the wait returns once the graph has been executed.
        before, began = _executions(), perf_counter()
        schedule(False)
        scheduled = perf_counter()
        wait_for_lazy_core()
        executed = perf_counter()
        counted = grown(before, _executions())
        show(ExecutedCut(reason, began, scheduled - began, executed - scheduled, counted))

    return wrap_lazy_syncs("the work of the lazy core", timed)


def watch_lazy_copies(show: Callable[[Copy], None], is_own: Callable[[Any], bool]) -> Undo:
    """Report to `show` each copy between a lazy tensor and the CPU.

    If `is_own` returns true for the Python frame of a copy, the copy is numdrift's, and is reported only if it executed
    a graph. Only the kernel of the copying op is replaced, by a function that calls it, so no node of a graph changes.
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
        is_numdrifts = caller is not None and is_own(caller)
        to_cpu = tensor.device.type == "lazy"
        fell_back: list[str] = []
        if to_cpu and not is_numdrifts:
            now = _fallbacks()
            fell_back, before = list(grown(before, now)), now
        executions, began = _executions(), perf_counter()
        result = kernel(tensor, **kwargs)
        seconds, counted = perf_counter() - began, grown(executions, _executions())
        if is_numdrifts and not counted:
            return result
        returns = not to_cpu and "layout" not in kwargs
        size = result.numel() * result.element_size()
        if caller is None:  # a backward runs on a thread without a frame of the script
            caller = sys._current_frames().get(threading.main_thread().ident or 0)
        show(Copy(to_cpu, size, began, seconds, counted, fell_back, returns, is_numdrifts, caller))
        return result

    overrides.replace(operation, LAZY_KEY, copied)
    return overrides.close


def _fallbacks() -> dict[str, int]:
    """Return the number of times that each op has run on the CPU."""
    value = private("torch._C._lazy", "_counter_value")
    names = private("torch._C._lazy", "_counter_names")()
    return {name: value(name) or 0 for name in names if name.startswith("aten::")}


def _executions() -> dict[str, int]:
    value = private("torch._C._lazy", "_counter_value")
    return {name: value(name) or 0 for name in (COMPILED, FOUND)}


def grown(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the increase of each counter that has increased."""
    return {name: value - before.get(name, 0) for name, value in now.items() if value != before.get(name, 0)}


def lazy_graph_sizes() -> tuple[int, float]:
    """Return the number of graphs that the core has executed in this process, and the total number of their nodes."""
    match = _SIZES.search(lazy_report())
    return (int(match[1]), float(match[2])) if match else (0, 0.0)


def lazy_report() -> str:
    """Return the core's own report of its measurements."""
    return str(private("torch._C._lazy", "_metrics_report")())


# How the lazy core treats an op: the counters of its fallbacks, and the IR of pending tensors.


def lazy_counter(name: str) -> int:
    """Return the lazy core's counter of this name; `aten::lerp.Scalar` counts executions of that op on the CPU."""
    value: int | None = private("torch._lazy.metrics", "counter_value")(name)
    return value or 0


def lazy_text(tensors: Sequence[torch.Tensor]) -> str:
    """Return the IR of the graph that is pending for these lazy tensors; the graph stays pending."""
    return str(private("torch._C._lazy", "_get_tensors_text")(functional_tensors(tensors)))


def lower_lazy(tensors: Sequence[torch.Tensor]) -> None:
    """Make the lazy core lower the graph that is pending for these lazy tensors, without executing it.

    Raises RuntimeError if the core's backend has no lowering for a node.
    """
    private("torch._C._lazy", "_get_tensors_backend")(functional_tensors(tensors))


def functional_tensors(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in functionalization's wrapper, as a script has them; lazy kernels receive them unwrapped."""
    wrapped = private("torch", "_is_functional_tensor")
    wrap = private("torch", "_to_functional_tensor")
    return [tensor if wrapped(tensor) else wrap(tensor) for tensor in tensors]


@contextmanager
def lazy_without_execution() -> Iterator[None]:
    """Make the lazy core build graphs within the context without executing them; values that are read are zeros.

    Raises NotAvailable.
    """
    core: Any = importlib.import_module("torch._C._lazy")
    for name in ("_mark_step", "_sync_multi"):
        require(core, name)

    def nothing(*args: Any, **kwargs: Any) -> None:
        """Execute nothing."""

    def to_copy(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(tensor: torch.Tensor, **options: Any) -> Any:
            wanted = options.get("device")
            if tensor.device.type == "lazy" and wanted is not None and torch.device(wanted).type != "lazy":
                return torch.zeros(tensor.shape, dtype=options.get("dtype") or tensor.dtype, device=wanted)
            return original(tensor, **options)

        return copy

    def copy_from(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(source: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
            if source.device.type == "lazy" and target.device.type != "lazy":
                return target.resize_(source.shape).zero_()
            return original(source, target, *args)

        return copy

    with Patches("a lazy core that executes nothing") as patches:
        for name in ("_mark_step", "_sync_multi"):
            patches.wrap(core, name, lambda before: nothing)
        overrides = Overrides()
        patches.also(overrides.close)
        # Every way in which a value leaves the core: a copy that a script asks for, and the copies of the core's
        # fallbacks.
        kernels = {"_to_copy": to_copy, "_copy_from": copy_from, "_copy_from_and_resize": copy_from}
        for name, replacement in kernels.items():
            operation = getattr(torch.ops.aten, name).default
            overrides.replace(operation, LAZY_KEY, replacement(boxed_kernel(operation, LAZY_KEY)))
    try:
        yield
    finally:
        patches.undo()
