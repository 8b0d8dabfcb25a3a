"""What a run's metrics come to: counts, times with percentiles, and what fragments its graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...records.backend_work import BREAK, FALLBACK, FROM_DEVICE, READS, TO_DEVICE, StepMetrics, Work
from ...records.mode_spec import parse_mode
from .run_metrics import RunMetrics
from .work_places import CopyPlace, Recompilation, copy_places, recompilations

PERCENTILES = (1, 5, 10, 20, 50, 80, 90, 95, 99)
"""Those of the metrics reports of torch's lazy core and of torch_xla."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values in the order in which they were measured."""

    values: Sequence[float]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution:
        """Of those that were measured."""
        return cls([value for value in values if value is not None])

    @property
    def total(self) -> float:
        return math.fsum(self.values)

    def percentile(self, share: float) -> float | None:
        """The smallest value that more than `share` percent of the values do not exceed, as torch's reports have it:
        number floor(share / 100 * n) of the n sorted values, counted from 0. None where nothing was measured."""
        ordered = sorted(self.values)
        # 100 % would be one beyond the last.
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
    """Copies in one direction; `timed` are those that no graph was executed for."""

    count: int
    bytes: int
    timed: Distribution

    def to_json(self) -> dict[str, object]:
        return {"count": self.count, "bytes": self.bytes, "seconds": self.timed.to_json()}


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """What ended graphs before their time, at one line: `what` is an op (`aten::lerp.Scalar`), a graph break
    with its reason, or a read (`read`, `item`).

    It happened `count` times in `steps` steps (before the first and after the last is none) and took
    `seconds` in all, the graphs that it cut included (None where that is not known); it cut `graphs` of them.
    `text` says it in a sentence."""

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
    """One run's metrics. Of `compiled` and `found` the first are graphs that were compiled, the other those
    that a cache had; a compilation that asked no cache is among the first."""

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
        return Distribution.of(one.seconds for one in self.compiled)

    @property
    def execute_seconds(self) -> Distribution:
        return Distribution.of(one.seconds for one in self.executed)

    @property
    def sizes(self) -> Distribution:
        """The nodes of the graphs that were executed, once for each execution."""
        return Distribution.of(one.size for one in self.executed)

    @property
    def peak(self) -> int | None:
        """Bytes that the process had at most, after its last step."""
        return self._highest("peak")

    @property
    def device_peak(self) -> int | None:
        """Bytes that tensors had on the device at most, since the script began."""
        return self._highest("device_peak")

    @property
    def reserved_peak(self) -> int | None:
        """Bytes that torch had reserved on the device at most."""
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
            "cache": {"hits": len(self.found), "misses": sum(one.cached is False for one in self.compiled)},
            "executed": {"count": len(self.executed), "seconds": self.execute_seconds.to_json()},
            "graph_sizes": self.sizes.to_json(),
            "to_device": self.to_device.to_json(),
            "from_device": self.from_device.to_json(),
            "fragmentation": [asdict(one) for one in self.fragmentation],
            "copies": [asdict(one) for one in self.copies],
            "recompilations": [asdict(one) for one in self.recompilations],
            "peak_bytes": self.peak,
            "device_peak_bytes": self.device_peak,
            "device_reserved_peak_bytes": self.reserved_peak,
            "counters": dict(metrics.counters),
            "by_step": [_step(part) for part in metrics.parts],
        }


def summarize(metrics: RunMetrics) -> MetricsSummary:
    work = [one.work for one in metrics.work]
    compiles = [one for one in work if one.kind == "compile"]
    # What fragments the graphs: values that were read, ops that fell back, graph breaks; by name and line.
    found: dict[tuple[str, str], _Place] = {}
    for part in metrics.parts:
        for one in (timed.work for timed in part.work):
            is_read = one.name in READS and one.kind in ("compile", "execute")
            falls_back = one.name.startswith(FALLBACK) and one.kind == "execute"
            if not (is_read or falls_back or one.kind == "fallback"):
                continue
            place = found.setdefault((one.name.removeprefix(FALLBACK), one.call), _Place())
            place.graphs += one.kind == "execute"
            # A fallback is told twice, as the op itself and as the graph that was executed for it: counted once, and
            # its time is that of the op.
            place.count += one.kind == ("execute" if is_read else "fallback")
            place.steps.add(part.step)
            if one.seconds is not None and not falls_back:
                place.seconds.append(one.seconds)
    by_inductor = parse_mode(metrics.run.manifest.spec).base == "compile"
    fragmentation = [place.made(what, call, by_inductor) for (what, call), place in found.items()]
    return MetricsSummary(
        metrics,
        Distribution([step.seconds for step in metrics.steps]),
        [one for one in compiles if not one.cached],
        [one for one in compiles if one.cached],
        [one for one in work if one.kind == "execute"],
        _transfers(work, TO_DEVICE),
        _transfers(work, FROM_DEVICE),
        sorted(fragmentation, key=lambda one: (-(one.seconds or 0.0), one.what, one.call)),
    )


def _transfers(work: Sequence[Work], name: str) -> Transfers:
    found = [one for one in work if one.kind == "transfer" and one.name == name]
    return Transfers(len(found), sum(one.size or 0 for one in found), Distribution.of(one.seconds for one in found))


@dataclass(slots=True)
class _Place:
    """What is known so far of one entry."""

    count: int = 0
    graphs: int = 0
    steps: set[int | None] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)

    def made(self, what: str, call: str, compiles: bool) -> Fragmentation:
        seconds = math.fsum(self.seconds) if self.seconds else None
        steps = len(self.steps - {None})
        where = f" at {call}" if call else ""
        during = f" in {steps:,} step{'s' * (steps != 1)}" if steps else ""
        often = "once" if self.count == 1 else f"{self.count:,} times{during}"
        cost = f"{often}{'' if seconds is None else f', {seconds * 1e3:,.3g} ms in all'}"
        fragments = f"; it fragments the graph ({self.graphs:,} cut)" if self.graphs else ""
        if what in READS:
            reading = "item() (or float(), or an `if`)" if what == "item" else "reading a value"
            text = f"{reading}{where} cuts the graph: {cost}"
        elif what.startswith(BREAK):
            text = f"{what}{where}, {often}: it fragments the graph"
        elif compiles:
            calls = f" ({self.count:,} calls)" if self.count > 1 else ""
            text = f"{what}{where} is torch's own kernel{calls}: Inductor has none for it, and fuses nothing with it"
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
        "compiled": sum(not one.cached for one in part.of("compile")),
        "found": sum(bool(one.cached) for one in part.of("compile")),
        "recompiled": sum(bool(one.cause) for one in part.of("compile")),
        "executed": sum(1 for _ in part.of("execute")),
        "graph_sizes": [one.size for one in part.of("execute")],
        "to_device_bytes": sum(one.size or 0 for one in part.of("transfer") if one.name == TO_DEVICE),
        "from_device_bytes": sum(one.size or 0 for one in part.of("transfer") if one.name == FROM_DEVICE),
        "phases": dict(part.phases),
        "counters": dict(part.counters),
        "memory": dict(part.memory),
    }
