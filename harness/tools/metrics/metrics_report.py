"""The metrics of a run in the text format of torch's lazy core and torch_xla.

    Metric: CompileTime
      TotalSamples: 1
      Accumulator: 09s969ms486.408us
      Percentiles: 1%=09s969ms486.408us; 5%=09s969ms486.408us; ...
    Counter: aten::lerp.Scalar
      Value: 4

Format and formulas follow torch/csrc/lazy/core/metrics.cpp, except that seconds and milliseconds are truncated; torch
2.13 rounds them (1.7 s is `01s700ms000.000us` in this report, and `02s700ms000.000us` in that of torch 2.13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...records.tools.backend_work import FROM_DEVICE, TO_DEVICE, TimedWork
from .metrics_summary import PERCENTILES, Distribution
from .run_metrics import RunMetrics

PARTS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3))
"""Units and their lengths in seconds; the rest is in microseconds."""


class Metric(NamedTuple):
    """One metric of the report; `samples` are (seconds since the script began, value)."""

    name: str
    samples: Sequence[tuple[float, float]]
    written: Callable[[float], str]


def metrics_report(metrics: RunMetrics) -> str:
    """Return the report of a run; metrics that were never measured have no entry."""
    lines: list[str] = []
    for metric in _metrics(metrics):
        if not metric.samples:
            continue
        values = Distribution([value for _, value in metric.samples])
        lines += [
            f"Metric: {metric.name}",
            f"  TotalSamples: {len(values.values)}",
            f"  Accumulator: {metric.written(values.total)}",
        ]
        # Rates are over the time from the first to the last sample; a single sample has no rate.
        elapsed = metric.samples[-1][0] - metric.samples[0][0]
        if elapsed > 0:
            lines += [
                f"  ValueRate: {metric.written(values.total / elapsed)} / second",
                f"  Rate: {len(values.values) / elapsed:g} / second",
            ]
        shares = [f"{share}%={metric.written(values.percentile(share) or 0.0)}" for share in PERCENTILES]
        lines.append(f"  Percentiles: {'; '.join(shares)}")
    for name, value in sorted(metrics.counters.items()):
        lines += [f"Counter: {name}", f"  Value: {value}"]
    return "".join(f"{line}\n" for line in lines)


def duration(seconds: float) -> str:
    """Format a duration as `09s969ms486.408us`: beginning with its largest unit, with leading zeros."""
    text = ""
    # Rounded to nanoseconds first: 0.9999999999 s is a second, not 999 ms and 1000.000 us.
    nanoseconds = round(seconds * 1e9)
    for suffix, unit in PARTS:
        count, rest = divmod(nanoseconds, round(unit * 1e9))
        if count or text:
            text += f"{count:0{3 if suffix == 'ms' else 2}}{suffix}"
            nanoseconds = rest
    return f"{text}{nanoseconds / 1e3:07.3f}us"


def _metrics(metrics: RunMetrics) -> Iterator[Metric]:
    work = metrics.work
    yield Metric(
        "CompileTime", _times(timed for timed in work if _is(timed, "compile") and not timed.work.cached), duration
    )
    yield Metric("ExecuteTime", _times(timed for timed in work if _is(timed, "execute")), duration)
    executed = [timed for timed in work if _is(timed, "execute") and timed.work.size is not None]
    yield Metric("TensorsGraphSize", [(timed.at, float(timed.work.size or 0)) for timed in executed], _plain)
    for name, direction in (("FromServer", FROM_DEVICE), ("ToServer", TO_DEVICE)):
        transfers = [timed for timed in work if _is(timed, "transfer") and timed.work.name == direction]
        yield Metric(f"Transfer{name}Time", _times(transfers), duration)
        yield Metric(f"Transfer{name}Bytes", [(timed.at, float(timed.work.size or 0)) for timed in transfers], _plain)
    yield Metric("StepTime", [(step.at, step.seconds) for step in metrics.steps], duration)


def _is(timed: TimedWork, kind: str) -> bool:
    return timed.work.kind == kind


def _times(works: Iterator[TimedWork] | Sequence[TimedWork]) -> list[tuple[float, float]]:
    return [(timed.at, timed.work.seconds) for timed in works if timed.work.seconds is not None]


def _plain(value: float) -> str:
    return f"{value:.2f}"
