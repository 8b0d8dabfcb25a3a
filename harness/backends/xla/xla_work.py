"""Observe the compilations, executions and transfers of torch_xla through its own metrics.

The metrics are read whenever the training reports an event and around each copy to the CPU, so that work is
attributed to its step. A graph that is executed because a value is read or because an op falls back to the CPU is
attributed to the line that caused it.
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
from ...records.tools.backend_work import FALLBACK, FROM_DEVICE, RECORDING, TO_DEVICE, Work, WorkKind
from ...torch_private.deferred.xla import Copied, around_xla_copies, own_reads
from ...torch_private.patches import Undo
from ..called_operators import Fallback, KeptFailure, line_in

NANOSECONDS = 1e-9

MARK, OP = "mark_step", "op"
"""The reasons for an execution: all pending work was executed, or each op separately (`execute=op`)."""

COMPILED, EXECUTED, SIZES = "CompileTime", "ExecuteTime", "TensorsGraphSize"
"""torch_xla's metrics of graphs.

A graph's size, in nodes, is added when the graph is submitted. Its time, in nanoseconds, is added once the graph has
been executed, which may be later. Graphs are executed in the order of submission.
"""

OPS: Mapping[str, WorkKind] = {"EagerOpCompileTime": "compile", "EagerOpExecuteTime": "execute"}
"""The metrics of `execute=op`, in nanoseconds."""

TRANSFERS: Mapping[str, tuple[str, str]] = {
    "TransferToDeviceTime": (TO_DEVICE, "OutboundData"),
    "TransferFromDeviceTime": (FROM_DEVICE, "InboundData"),
}
"""The metrics of transfer times, in nanoseconds, each with its direction and the metric of the transferred bytes.

The metric of the bytes has as many samples as the metric of the times.
"""

CACHED = "CachedCompile"
"""torch_xla's counter of compilations that were found in its cache, including compilations of single ops."""

ITEM = "aten::_local_scalar_dense"
"""torch_xla's counter of values read by `.item()`, `float(tensor)` or `if tensor`, one of its fallback counters."""


def xla_metrics() -> Any:
    """Return the module of torch_xla's metrics. Raise NotAvailable if it cannot be imported."""
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
    """The observer of torch_xla's work. It calls `report` with each piece of work from `__enter__` to `__exit__`.

    `__enter__` returns a function that reports all work not yet reported.
    """

    def __init__(
        self, script: str, report: Callable[[Work], None], around_copies: Callable[[Copied], Undo] = around_xla_copies
    ) -> None:
        self._script = script
        self._report = report
        self._around_copies = around_copies
        self._metrics = xla_metrics()
        sizes = (size for _, size in TRANSFERS.values())
        self._read_counts = {
            name: self._samples(name)[0] for name in (COMPILED, EXECUTED, SIZES, *OPS, *TRANSFERS, *sizes)
        }
        self._counted = xla_counters()
        self._graphs: deque[tuple[str, str, int]] = deque()  # submitted: reason, line, number of nodes
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
            for why, call, size in self._graphs:  # still being executed
                self._report(Work("execute", why, None, size, None, call))

    def _tell(self) -> None:
        self._kept.tell()
        self._end_fallback()
        self._take(MARK, line_in(self._script))

    @contextmanager
    def _reads(self) -> Iterator[None]:
        """While numdrift reads values for itself, report executions as recording, and report no transfers."""
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
        """Observe a copy to or from the device, made by the script or for an op that falls back to the CPU."""
        if self._is_own:
            return copy()
        began, why, call = time.perf_counter(), MARK, line_in(self._script, caller)
        with self._kept:
            # All copies of a fallback come from one place in the code. The op is counted before the first copy.
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
            self._report(Work("fallback", earlier_op))
        if op and op != ITEM:
            self._fallback = Fallback(op, place, call, now, now)
        if self._fallback is not None:
            return FALLBACK + self._fallback.op
        return "item" if op == ITEM else "read"

    def _end_fallback(self) -> None:
        fallback, self._fallback = self._fallback, None
        if fallback is not None:
            self._report(fallback.work())

    def _take(self, why: str, call: str, *, falls_back: bool = False) -> list[str]:
        """Report the new work that the line `call` caused for the reason `why`.

        If `falls_back`, an op may be falling back now: the ops that fell back since the last call are returned
        instead of reported.
        """
        self._graphs += [(why, call, int(size)) for size in self._new(SIZES)]
        for nanoseconds in self._new(COMPILED):
            self._report(Work("compile", why, nanoseconds * NANOSECONDS, None, False, call))
        for nanoseconds in self._new(EXECUTED):
            reason, by, size = self._graphs.popleft() if self._graphs else (why, call, None)
            self._report(Work("execute", reason, nanoseconds * NANOSECONDS, size, None, by))
        for name, kind in OPS.items():
            for nanoseconds in self._new(name):
                cached = False if kind == "compile" else None
                self._report(
                    Work(kind, RECORDING if why == RECORDING else OP, nanoseconds * NANOSECONDS, None, cached, call)
                )
        for name, (way, of_bytes) in TRANSFERS.items():
            times, sizes = self._new(name), self._new(of_bytes)
            paired = len(times) == len(sizes)
            for index, nanoseconds in enumerate(times if why != RECORDING else ()):
                size = int(sizes[index]) if paired else None
                self._report(Work("transfer", way, nanoseconds * NANOSECONDS, size, None, call))
        before, self._counted = self._counted, xla_counters()
        grown = {name: value - before.get(name, 0) for name, value in self._counted.items()}
        for _ in range(grown.get(CACHED, 0)):
            self._report(Work("compile", why, None, None, True, call))
        ops = [name for name, count in grown.items() if name.startswith("aten::") for _ in range(count)]
        if falls_back:
            return ops
        for op in ops:
            if op != ITEM:
                self._report(Work("fallback", op))
        return []

    def _new(self, name: str) -> list[float]:
        """Return the samples that a metric has gained since the last call."""
        count, samples = self._samples(name)
        new, self._read_counts[name] = count - self._read_counts[name], count
        return samples[len(samples) - min(new, len(samples)) :]

    def _samples(self, name: str) -> tuple[int, list[float]]:
        """Return the number of a metric's samples, and the newest samples (torch_xla keeps 1,024)."""
        data = self._metrics.metric_data(name)
        return (0, []) if data is None else (int(data[0]), [float(value) for _, value in data[2]])
