"""What torch_xla compiles, executes and transfers, by its own metrics.

They are looked at whenever a moment of the training is reached, and around each copy to the CPU. So a piece of work is
put down to its step, and a graph that was executed because a value is read, or because an op is handed to the CPU, to
the line that did it.
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
"""Why something was executed: all that was pending is, or each op by itself is (`execute=op`)."""

COMPILED, EXECUTED, SIZES = "CompileTime", "ExecuteTime", "TensorsGraphSize"
"""torch_xla's metrics of graphs. A size, in nodes, is noted when a graph is handed over; a time, in nanoseconds, once
it has been executed, which may be later. Graphs are executed in their order."""

OPS: Mapping[str, WorkKind] = {"EagerOpCompileTime": "compile", "EagerOpExecuteTime": "execute"}
"""Those of `execute=op`, in nanoseconds."""

TRANSFERS: Mapping[str, tuple[str, str]] = {
    "TransferToDeviceTime": (TO_DEVICE, "OutboundData"),
    "TransferFromDeviceTime": (FROM_DEVICE, "InboundData"),
}
"""Those of transfers, in nanoseconds, each with the one that has a sample of its bytes for each."""

CACHED = "CachedCompile"
"""Its counter of compilations that it had done before, ops included."""

ITEM = "aten::_local_scalar_dense"
"""Its counter of values that `.item()`, `float(tensor)` or `if tensor` have read: a fallback like any other to it."""


def xla_metrics() -> Any:
    """The module of torch_xla's metrics. Raises NotAvailable."""
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
    """Tells `told` of torch_xla's work from `__enter__` to `__exit__`; what that gives tells of what is not
    told yet."""

    def __init__(
        self, script: str, told: Callable[[Work], None], around_copies: Callable[[Copied], Undo] = around_xla_copies
    ) -> None:
        self._script = script
        self._told = told
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
        """numdrift reads values for itself: what that executes is recording, its transfers are nobody's."""
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
        """A value leaves the device, read by the script or by an op that is handed to the CPU, or comes to it."""
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
        made = copy()
        with self._kept:
            if self._fallback is not None:
                self._fallback.ended = time.perf_counter()
            if to_cpu:
                self._take(why, call)
        return made

    def _began(self, place: tuple[Any, int], call: str, now: float) -> str:
        """A copy to the CPU is about to be made: why."""
        *others, op = self._take(MARK, call, falls_back=True) or [""]
        if op or self._fallback is None or self._fallback.place != place:
            self._end_fallback()
        for one in others:
            self._told(Work("fallback", one))
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
        """Tell what is new, which was done for the reason `why` by the line `call`. Where an op `falls_back` right now
        the ops are given that do so since the last time, and not told."""
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
            for place, nanoseconds in enumerate(times if why != RECORDING else ()):
                size = int(sizes[place]) if paired else None
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
        """The samples of a metric that came since the last time."""
        count, samples = self._samples(name)
        new, self._taken[name] = count - self._taken[name], count
        return samples[len(samples) - min(new, len(samples)) :]

    def _samples(self, name: str) -> tuple[int, list[float]]:
        """How many there were, and the newest of them (torch_xla keeps 1,024)."""
        found = self._metrics.metric_data(name)
        return (0, []) if found is None else (int(found[0]), [float(value) for _, value in found[2]])
