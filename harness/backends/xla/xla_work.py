"""Observes what torch_xla compiles, executes and transfers, by its own metrics.

The metrics are read at each moment of the training, and around each copy to the CPU. So a piece of work is assigned to
its step. A graph that was executed because a value is read, or because an op falls back to the CPU, is assigned to the
line that caused it.
"""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ...errors import NotAvailable
from ...records.backend_work import FALLBACK, FROM_DEVICE, RECORDING, TO_DEVICE, Work, WorkKind
from ...torch_private.patches import Undo
from ...torch_private.xla import Copied, around_xla_copies, own_reads
from ..called_operators import Fallback, KeptFailure, line_in

NANOSECONDS = 1e-9

MARK, OP = "mark_step", "op"
"""The reasons of an execution: that of all pending work, and that of each op by itself (`execute=op`)."""

COMPILED, EXECUTED, SIZES = "CompileTime", "ExecuteTime", "TensorsGraphSize"
"""torch_xla's metrics of graphs.

It notes a size, in nodes, when a graph is handed over. It notes a time, in nanoseconds, once the graph has been
executed, which may be later. Graphs are executed in their order.
"""

OPS: Mapping[str, WorkKind] = {"EagerOpCompileTime": "compile", "EagerOpExecuteTime": "execute"}
"""The metrics of `execute=op`, in nanoseconds."""

TRANSFERS: Mapping[str, tuple[str, str]] = {
    "TransferToDeviceTime": (TO_DEVICE, "OutboundData"),
    "TransferFromDeviceTime": (FROM_DEVICE, "InboundData"),
}
"""The metrics of transfers, in nanoseconds, each with the metric of their bytes, which has as many samples."""

CACHED = "CachedCompile"
"""torch_xla's counter of compilations that it had done before, ops included."""

ITEM = "aten::_local_scalar_dense"
"""torch_xla's counter of values that `.item()`, `float(tensor)` or `if tensor` have read, one of its fallbacks."""


def xla_metrics() -> Any:
    """Return the module of torch_xla's metrics. Raises NotAvailable."""
    try:
        return importlib.import_module("torch_xla.debug.metrics")
    except ImportError as error:
        raise NotAvailable("torch_xla's metrics", str(error)) from error


def xla_report() -> str:
    return str(xla_metrics().metrics_report())


def xla_counters() -> dict[str, int]:
    metrics = xla_metrics()
    return {name: int(metrics.counter_value(name) or 0) for name in metrics.counter_names()}


class XlaWork:
    """Passes torch_xla's work from `__enter__` to `__exit__` to `report`.

    `__enter__` returns a function that reports the work that is not reported yet.
    """

    def __init__(
        self, script: str, report: Callable[[Work], None], around_copies: Callable[[Copied], Undo] = around_xla_copies
    ) -> None:
        self._script = script
        self._told = report
        self._around_copies = around_copies
        self._metrics = xla_metrics()
        sizes = (size for _, size in TRANSFERS.values())
        self._taken = {name: self._samples(name)[0] for name in (COMPILED, EXECUTED, SIZES, *OPS, *TRANSFERS, *sizes)}
        self._counted = xla_counters()
        self._graphs: deque[tuple[str, str, int]] = deque()  # handed over: why, by which line, of how many nodes
        self._fallback: Fallback | None = None
        self._is_own = False
        self._kept = KeptFailure()
        self._undo: Undo = lambda: None

    def __enter__(self) -> Callable[[], None]:
        self._undo = self._around_copies(self._copied)
        own_reads.append(self._reads)
        return self._tell

    def __exit__(self, *raised: object) -> None:
        own_reads.remove(self._reads)
        self._undo()
        with self._kept:
            self._end_fallback()
            self._take(MARK, "")
            for why, call, size in self._graphs:  # still under way
                self._told(Work("execute", why, None, size, None, call))

    def _tell(self) -> None:
        self._kept.tell()
        self._end_fallback()
        self._take(MARK, line_in(self._script))

    @contextmanager
    def _reads(self) -> Iterator[None]:
        """Report what is executed while numdrift reads values for itself as recording, and its transfers not at all."""
        with self._kept:
            self._end_fallback()
            self._take(MARK, line_in(self._script))
        self._is_own = True
        try:
            yield
        finally:
            self._is_own = False
        with self._kept:
            self._take(RECORDING, line_in(self._script))

    def _copied(self, to_cpu: bool, caller: FrameType | None, copy: Callable[[], Any]) -> Any:
        """Observe a copy from the device, for the script or for an op that falls back to the CPU, or a copy to it."""
        if self._is_own:
            return copy()
        began, why, call = time.perf_counter(), MARK, line_in(self._script, caller)
        with self._kept:
            # All copies of one fallback come from one place, and the op has been counted before the first.
            place = (None, 0) if caller is None else (caller.f_code, caller.f_lasti)
            if to_cpu:
                why = self._began(place, call, began)
            elif self._fallback is not None and self._fallback.place != place:
                self._end_fallback()
        copied_value = copy()
        with self._kept:
            if self._fallback is not None:
                self._fallback.ended = time.perf_counter()
            if to_cpu:
                self._take(why, call)
        return copied_value

    def _began(self, place: tuple[Any, int], call: str, now: float) -> str:
        """Return the reason for a copy to the CPU that is about to be made."""
        *earlier_ops, op = self._take(MARK, call, falls_back=True) or [""]
        if op or self._fallback is None or self._fallback.place != place:
            self._end_fallback()
        for earlier_op in earlier_ops:
            self._told(Work("fallback", earlier_op))
        if op and op != ITEM:
            self._fallback = Fallback(op, place, call, now, now)
        if self._fallback is not None:
            return FALLBACK + self._fallback.op
        return "item" if op == ITEM else "read"

    def _end_fallback(self) -> None:
        fallback, self._fallback = self._fallback, None
        if fallback is not None:
            seconds = fallback.ended - fallback.began
            self._told(Work("fallback", fallback.op, seconds, None, None, fallback.call))

    def _take(self, why: str, call: str, *, falls_back: bool = False) -> list[str]:
        """Report new work, done for the reason `why` by the line `call`.

        Where an op `falls_back` right now, the ops that have done so since the last time are returned, not reported.
        """
        self._graphs += [(why, call, int(size)) for size in self._new(SIZES)]
        for nanoseconds in self._new(COMPILED):
            self._told(Work("compile", why, nanoseconds * NANOSECONDS, None, False, call))
        for nanoseconds in self._new(EXECUTED):
            reason, by, size = self._graphs.popleft() if self._graphs else (why, call, None)
            self._told(Work("execute", reason, nanoseconds * NANOSECONDS, size, None, by))
        for name, kind in OPS.items():
            for nanoseconds in self._new(name):
                cached = False if kind == "compile" else None
                self._told(
                    Work(kind, RECORDING if why == RECORDING else OP, nanoseconds * NANOSECONDS, None, cached, call)
                )
        for name, (way, of_bytes) in TRANSFERS.items():
            times, sizes = self._new(name), self._new(of_bytes)
            paired = len(times) == len(sizes)
            for index, nanoseconds in enumerate(times if why != RECORDING else ()):
                size = int(sizes[index]) if paired else None
                self._told(Work("transfer", way, nanoseconds * NANOSECONDS, size, None, call))
        before, self._counted = self._counted, xla_counters()
        grown = {name: value - before.get(name, 0) for name, value in self._counted.items()}
        for _ in range(grown.get(CACHED, 0)):
            self._told(Work("compile", why, None, None, True, call))
        ops = [name for name, count in grown.items() if name.startswith("aten::") for _ in range(count)]
        if falls_back:
            return ops
        for op in ops:
            if op != ITEM:
                self._told(Work("fallback", op))
        return []

    def _new(self, name: str) -> list[float]:
        """Return the samples of a metric that are new since the last time."""
        count, samples = self._samples(name)
        new, self._taken[name] = count - self._taken[name], count
        return samples[len(samples) - min(new, len(samples)) :]

    def _samples(self, name: str) -> tuple[int, list[float]]:
        """Return the number of a metric's samples, and the newest of them (torch_xla keeps 1,024)."""
        data = self._metrics.metric_data(name)
        return (0, []) if data is None else (int(data[0]), [float(value) for _, value in data[2]])
