"""The work of torch_xla, taken from its own metrics after each mark_step. Not tried on a device: torch_xla
2.9 names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import NotAvailable
from ...records.backend_work import FROM_DEVICE, TO_DEVICE, Work, WorkKind
from ..work_lines import KeptFailure, line_in

NANOSECONDS = 1e-9

TIMES: Mapping[str, tuple[WorkKind, str]] = {
    "CompileTime": ("compile", "mark_step"),
    "ExecuteTime": ("execute", "mark_step"),
    "TransferToDeviceTime": ("transfer", TO_DEVICE),
    "TransferFromDeviceTime": ("transfer", FROM_DEVICE),
}
"""torch_xla's metrics of times, in nanoseconds, and what they are here."""


def xla_metrics() -> Any:
    """The module of torch_xla's metrics. Raises NotAvailable."""
    try:
        return importlib.import_module("torch_xla.debug.metrics")
    except ImportError as error:
        raise NotAvailable("torch_xla's metrics", str(error)) from error


def xla_counters() -> dict[str, int]:
    metrics = xla_metrics()
    return {name: int(metrics.counter_value(name) or 0) for name in metrics.counter_names()}


class XlaWork:
    """Tells `told` of torch_xla's work from `__enter__` to `__exit__`; what that gives tells of what is not
    told yet."""

    def __init__(self, script: str, told: Callable[[Work], None]) -> None:
        self._script = script
        self._told = told
        self._metrics = xla_metrics()
        self._taken = {name: self._samples(name)[0] for name in TIMES}
        self._counted = xla_counters()
        self._kept = KeptFailure()

    def __enter__(self) -> Callable[[], None]:
        return self._tell

    def __exit__(self, *raised: object) -> None:
        with self._kept:
            self._take()

    def _tell(self) -> None:
        self._kept.tell()
        self._take()

    def _take(self) -> None:
        for name, (kind, what) in TIMES.items():
            count, samples = self._samples(name)
            new, self._taken[name] = count - self._taken[name], count
            cached = False if kind == "compile" else None
            for nanoseconds in samples[len(samples) - min(new, len(samples)) :]:
                self._told(Work(kind, what, nanoseconds * NANOSECONDS, None, cached, line_in(self._script)))
        before, self._counted = self._counted, xla_counters()
        for name, value in self._counted.items():
            for _ in range(value - before.get(name, 0)):
                if name == "CachedCompile":
                    self._told(Work("compile", "mark_step", None, None, True))
                elif name.startswith("aten::"):
                    self._told(Work("fallback", name))

    def _samples(self, name: str) -> tuple[int, list[float]]:
        """How many there were, and the newest of them (torch_xla keeps 1,024)."""
        found = self._metrics.metric_data(name)
        return (0, []) if found is None else (int(found[0]), [float(value) for _, value in found[2]])
