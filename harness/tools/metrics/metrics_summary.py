"""The summary of a run's metrics: counts, times with percentiles, and the causes that fragment its graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...records.modes.mode_spec import parse_mode
from ...records.tools.backend_work import BREAK, FALLBACK, FROM_DEVICE, READS, TO_DEVICE, StepMetrics, Work
from .run_metrics import RunMetrics
from .work_places import CopyPlace, Recompilation, copy_places, recompilations

PERCENTILES = (1, 5, 10, 20, 50, 80, 90, 95, 99)
"""The percentiles in the metrics reports of torch's lazy core and torch_xla."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values in the order in which they were measured."""

    values: Sequence[float]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution:
        """Create a distribution from the measured values, without None."""
        return cls([value for value in values if value is not None])

    @property
    def total(self) -> float:
        return math.fsum(self.values)

    def percentile(self, share: float) -> float | None:
        """Return the smallest value v such that more than `share` percent of the values are at most v, None if empty.

        As in torch's reports, this is number floor(share / 100 * n) of the n sorted values, counted from 0.
        """
        ordered = sorted(self.values)
        # The index of 100 % would be past the end.
        return ordered[min(len(ordered) - 1, int(share / 100 * len(ordered)))] if ordered else None

    def to_json(self) -> dict[str, object]:
        return {
            "count": len(self.values),
            "total": self.total,
            "max": max(self.values, default=None),
            "percentiles": {str(share): self.percentile(share) for share in PERCENTILES},
        }


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies in one direction. `timed` has the times of the copies for which no graph was executed."""

    count: int
    bytes: int
    timed: Distribution

    def to_json(self) -> dict[str, object]:
        return {"count": self.count, "bytes": self.bytes, "seconds": self.timed.to_json()}


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """A cause that ended graphs early, at one line of the script.

    what: an op (`aten::lerp.Scalar`), a graph break with its reason, or a read (`read`, `item`)
    count: the number of times that it happened
    steps: the number of steps in which it happened; the time before the first and after the last step does not
        count
    seconds: the total time that it took, including the execution of the graphs that it cut; None if not known
    graphs: the number of graphs that it cut
    text: a sentence about it
    """

    what: str
    call: str
    count: int
    steps: int
    seconds: float | None
    graphs: int
    text: str

    @property
    def is_read(self) -> bool:
        return self.what in READS


@dataclass(frozen=True, slots=True)
class MetricsSummary:
    """The summary of one run's metrics.

    compiled: graphs that were compiled, including those compiled without a cache
    found: graphs that were found in a cache
    """

    metrics: RunMetrics
    steps: Distribution
    compiled: Sequence[Work]
    found: Sequence[Work]
    executed: Sequence[Work]
    to_device: Transfers
    from_device: Transfers
    fragmentation: Sequence[Fragmentation] = field(default=())

    @property
    def copies(self) -> list[CopyPlace]:
        """The lines that copy between the host and a device."""
        return copy_places(self.metrics.parts)

    @property
    def recompilations(self) -> list[Recompilation]:
        return recompilations(self.metrics.parts)

    @property
    def compile_seconds(self) -> Distribution:
        return Distribution.of(work.seconds for work in self.compiled)

    @property
    def execute_seconds(self) -> Distribution:
        return Distribution.of(work.seconds for work in self.executed)

    @property
    def sizes(self) -> Distribution:
        """The numbers of nodes of the executed graphs, one for each execution."""
        return Distribution.of(work.size for work in self.executed)

    @property
    def peak(self) -> int | None:
        """The peak memory of the process in bytes, read after its last step."""
        return self._highest("peak")

    @property
    def device_peak(self) -> int | None:
        """The peak bytes of tensors on the device since the script began."""
        return self._highest("device_peak")

    @property
    def reserved_peak(self) -> int | None:
        """The peak bytes that torch reserved on the device."""
        return self._highest("device_reserved_peak")

    def _highest(self, name: str) -> int | None:
        return max((part.memory.get(name, 0) for part in self.metrics.parts), default=0) or None

    def to_json(self) -> dict[str, Any]:
        metrics = self.metrics
        return {
            "path": str(metrics.run.path),
            "mode": metrics.run.manifest.mode,
            "spec": metrics.run.manifest.spec,
            "status": metrics.run.manifest.status,
            "backend": metrics.backend,
            "unavailable": metrics.unavailable,
            "step_seconds": self.steps.to_json(),
            "compiled": {"count": len(self.compiled), "seconds": self.compile_seconds.to_json()},
            "cache": {"hits": len(self.found), "misses": sum(work.cached is False for work in self.compiled)},
            "executed": {"count": len(self.executed), "seconds": self.execute_seconds.to_json()},
            "graph_sizes": self.sizes.to_json(),
            "to_device": self.to_device.to_json(),
            "from_device": self.from_device.to_json(),
            "fragmentation": [asdict(place) for place in self.fragmentation],
            "copies": [asdict(place) for place in self.copies],
            "recompilations": [asdict(recompilation) for recompilation in self.recompilations],
            "peak_bytes": self.peak,
            "device_peak_bytes": self.device_peak,
            "device_reserved_peak_bytes": self.reserved_peak,
            "counters": dict(metrics.counters),
            "by_step": [_step(part) for part in metrics.parts],
        }


def summarize(metrics: RunMetrics) -> MetricsSummary:
    work = [timed.work for timed in metrics.work]
    compiles = [entry for entry in work if entry.kind == "compile"]
    # The causes that fragment graphs, by name and line: reads of values, fallbacks, graph breaks.
    places: dict[tuple[str, str], _Place] = {}
    for part in metrics.parts:
        for item in (timed.work for timed in part.work):
            is_read = item.name in READS and item.kind in ("compile", "execute")
            falls_back = item.name.startswith(FALLBACK) and item.kind == "execute"
            if not (is_read or falls_back or item.kind == "fallback"):
                continue
            place = places.setdefault((item.name.removeprefix(FALLBACK), item.call), _Place())
            place.graphs += item.kind == "execute"
            # A fallback is recorded twice, as the op and as the graph that was executed for it. It counts once, with
            # the time of the op.
            place.count += item.kind == ("execute" if is_read else "fallback")
            place.steps.add(part.step)
            if item.seconds is not None and not falls_back:
                place.seconds.append(item.seconds)
    by_inductor = parse_mode(metrics.run.manifest.spec).capabilities.compiles
    fragmentation = [place.fragmentation(what, call, by_inductor) for (what, call), place in places.items()]
    return MetricsSummary(
        metrics,
        Distribution([step.seconds for step in metrics.steps]),
        [entry for entry in compiles if not entry.cached],
        [entry for entry in compiles if entry.cached],
        [entry for entry in work if entry.kind == "execute"],
        _transfers(work, TO_DEVICE),
        _transfers(work, FROM_DEVICE),
        sorted(fragmentation, key=lambda cause: (-(cause.seconds or 0.0), cause.what, cause.call)),
    )


def _transfers(work: Sequence[Work], name: str) -> Transfers:
    transfers = [entry for entry in work if entry.kind == "transfer" and entry.name == name]
    return Transfers(
        len(transfers),
        sum(entry.size or 0 for entry in transfers),
        Distribution.of(entry.seconds for entry in transfers),
    )


@dataclass(slots=True)
class _Place:
    """The running sums of one cause at one line."""

    count: int = 0
    graphs: int = 0
    steps: set[int | None] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)

    def fragmentation(self, what: str, call: str, compiles: bool) -> Fragmentation:
        seconds = math.fsum(self.seconds) if self.seconds else None
        steps = len(self.steps - {None})
        where = f" at {call}" if call else ""
        during = f" in {steps:,} step{'s' * (steps != 1)}" if steps else ""
        often = "once" if self.count == 1 else f"{self.count:,} times{during}"
        cost = f"{often}{'' if seconds is None else f', {seconds * 1e3:,.3g} ms in all'}"
        fragments = f"; it fragments the graph (graphs cut: {self.graphs:,})" if self.graphs else ""
        if what in READS:
            reading = "item() (or float(), or an `if`)" if what == "item" else "reading a value"
            text = f"{reading}{where} cuts the graph: {cost}"
        elif what.startswith(BREAK):
            text = f"{what}{where}, {often}: it fragments the graph"
        elif compiles:
            calls = f" ({self.count:,} calls)" if self.count > 1 else ""
            why = "Inductor has no kernel for it and fuses nothing with it"
            text = f"{what}{where} runs as torch's own kernel{calls}: {why}"
        else:
            text = f"{what}{where} falls back to the CPU: {cost}{fragments}"
        return Fragmentation(what, call, self.count, steps, seconds, self.graphs, text)


def _step(part: StepMetrics) -> dict[str, object]:
    return {
        "step": part.step,
        "name": part.name,
        "seconds": part.seconds,
        "compile": part.seconds_of("compile"),
        "execute": part.seconds_of("execute"),
        "transfer": part.seconds_of("transfer"),
        "recording": part.recording,
        "other": part.other,
        "compiled": sum(not work.cached for work in part.of("compile")),
        "found": sum(bool(work.cached) for work in part.of("compile")),
        "recompiled": sum(bool(work.cause) for work in part.of("compile")),
        "executed": sum(1 for _ in part.of("execute")),
        "graph_sizes": [work.size for work in part.of("execute")],
        "to_device_bytes": sum(work.size or 0 for work in part.of("transfer") if work.name == TO_DEVICE),
        "from_device_bytes": sum(work.size or 0 for work in part.of("transfer") if work.name == FROM_DEVICE),
        "phases": dict(part.phases),
        "counters": dict(part.counters),
        "memory": dict(part.memory),
    }
