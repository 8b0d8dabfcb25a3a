"""Records what a run's backend compiles, executes and transfers, step by step.

The run's file `metrics.jsonl` has a line for the start, a line `setup` for everything before the first forward, a line
for each completed step, a line `rest` for everything after the last completed step, and a line for the end. Each line
is appended in one piece, so a killed run keeps every completed step.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ..errors import NotAvailable
from ..hooks.backend_adapter import Tell
from ..hooks.mode_protocol import Moment
from ..hooks.observer import Observer, Progress, Surroundings
from ..records.tools.backend_work import FILE, PHASES, RECORDING, REST, SCHEMA, SETUP, Work
from ..tape.files.journal_writing import EventLog
from ..torch_private.profiling.device_work import memory_of

PAGE = os.sysconf("SC_PAGE_SIZE")
MAXRSS = 1 if sys.platform == "darwin" else 1024
"""Bytes per unit of `ru_maxrss` (getrusage(2): kilobytes on Linux, bytes on macOS)."""


DEVICE_MEMORY = {
    "allocated": "device",
    "allocated_peak": "device_peak",
    "reserved": "device_reserved",
    "reserved_peak": "device_reserved_peak",
}
"""Maps each reading of a device's memory to its name in a line.

Peaks count from the script's start: a reset would change the peaks that the script itself reads.
"""


class MetricsInstrument(Observer):
    """Follows the steps and records the backend's work."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._adapter = surroundings.mode.adapter()
        self._log = EventLog(surroundings.folder / FILE)
        self._hooks = ExitStack()
        self._tell: Tell = lambda: None
        self._works: list[list[Any]] = []
        self._phases: dict[str, float] = {}
        self._counters: Mapping[str, int] = {}
        self._is_setup = True
        self._began = self._since = self._line_began = time.perf_counter()
        self._phase = SETUP
        self._worked = 0.0
        self._step = 0

    def install(self) -> None:
        # Restart the clock: the imports since `__init__` are not part of the training.
        self._began = self._since = self._line_began = time.perf_counter()
        lacks = ""
        try:
            script = self._around.config.script
            self._tell = self._hooks.enter_context(self._adapter.observe_work(script, self._record_work))
        except NotAvailable as error:
            lacks = str(error)
        self._counters = dict(self._adapter.counters())
        name, at_once = self._adapter.name, self._adapter.executes_at_once
        self._log.write("start", schema=SCHEMA, backend=name, executes_at_once=at_once, unavailable=lacks)

    def closing(self, moment: Moment, step: int) -> None:
        self._end_phase(time.perf_counter())
        self._tell()
        self._phase = RECORDING

    def reached(self, progress: Progress, step: int) -> None:
        now = time.perf_counter()
        self._end_phase(now)
        self._tell()
        if self._is_setup:
            self._is_setup = False
            self._write(SETUP, now)
        if progress == "step":
            self._write("step", now, step=self._step)
            self._step = step
        elif progress == "end":
            self._write(REST, now)
        self._phase = {"step": "between", "end": RECORDING}.get(progress, progress)

    def close(self) -> None:
        try:
            self._hooks.close()
        finally:
            with suppress(OSError):
                self._log.write("end", counters=dict(self._adapter.counters()), report=self._adapter.report())
                self._log.close()

    def forget(self) -> None:
        self._log.close()

    def _record_work(self, work: Work) -> None:
        seconds = work.seconds
        at = time.perf_counter() - (seconds or 0.0) - self._began
        plain = [work.kind, work.name, _rounded(seconds), work.size, work.cached, work.call, _rounded(at)]
        self._works.append([*plain, work.cause] if work.cause else plain)
        if work.kind != "fallback":  # the graphs and copies of a fallback are reported separately
            self._worked += seconds or 0.0

    def _end_phase(self, now: float) -> None:
        """Record the end of the current phase. In the phase `recording`, the backend's work does not count."""
        seconds, began = now - self._since, self._since
        if self._phase == RECORDING:
            seconds = max(0.0, seconds - self._worked)
        elif self._adapter.executes_at_once and self._phase in PHASES:
            # An eager backend reports no graphs: each phase of the step counts as one execution, minus its copies.
            at, executing = _rounded(began - self._began), max(0.0, seconds - self._worked)
            self._works.append(["execute", self._phase, _rounded(executing), None, None, "", at])
        self._phases[self._phase] = self._phases.get(self._phase, 0.0) + seconds
        self._since, self._worked = now, 0.0

    def _write(self, event: str, now: float, **fields: Any) -> None:
        # A line has the growth of the counters since the last line, and the known memory readings in bytes.
        before, counters = self._counters, dict(self._adapter.counters())
        grown = {name: value - before.get(name, 0) for name, value in counters.items() if value != before.get(name, 0)}
        memory = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS}
        with suppress(OSError, ValueError, IndexError):
            memory["resident"] = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
        for name, count in memory_of(self._around.mode.device).items():
            if name in DEVICE_MEMORY:
                memory[DEVICE_MEMORY[name]] = count
        self._log.write(
            event,
            **fields,
            at=_rounded(self._line_began - self._began),
            seconds=_rounded(now - self._line_began),
            phases={name: _rounded(seconds) for name, seconds in self._phases.items()},
            work=self._works,
            counters=grown,
            memory=memory,
        )
        self._works, self._phases, self._counters = [], {}, counters
        self._line_began = now


def _rounded(seconds: float | None) -> float | None:
    """Round to the nanosecond."""
    return None if seconds is None else round(seconds, 9)
