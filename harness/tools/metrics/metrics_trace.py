"""The metrics of runs as a Chrome trace, which Perfetto opens.

Each run is a process, with a row for its steps and for each kind of its backend's work, and counters for its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...records.tools.backend_work import StepMetrics, TimedWork
from .run_metrics import RunMetrics

Event = dict[str, Any]

STEPS = "steps"
ROWS = (STEPS, "compile", "execute", "transfer", "fallback")
"""The rows of a run from the top. If pieces of work in one row overlap, further rows below that row show them."""

MOST_ROWS = 100
"""The largest number of rows that the work of one of `ROWS` may take up."""

MICROSECONDS = 1e6  # in a second; a trace is in microseconds

COUNTERS = {
    "resident": "memory resident",
    "device": "device memory allocated",
    "device_reserved": "device memory reserved",
}
"""The readings of memory to draw, with the names of their counters."""


def metrics_trace(runs: Sequence[RunMetrics]) -> dict[str, object]:
    """Return the content of the trace file."""
    events = [event for number, run in enumerate(runs, 1) for event in _run(run, number)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _run(metrics: RunMetrics, process: int) -> Iterator[Event]:
    yield _named("process_name", process, 0, f"{metrics.run.path.name} ({metrics.run.manifest.spec})")
    works: dict[str, list[Event]] = {row: [] for row in ROWS}
    for part in metrics.parts:
        works[STEPS].append(_slice(part.name or f"step {part.step}", part.at, part.seconds, {"step": part.step}))
        for timed in part.work:
            works[timed.work.kind].append(_work(timed, part))
        yield from _counters(part, process)
    for place, (row, events) in enumerate(works.items()):
        rows: dict[int, list[float]] = {}
        for event in sorted(events, key=lambda entry: (entry["ts"], -entry.get("dur", 0.0))):
            number = place * MOST_ROWS + _row(event, rows)
            yield {**event, "pid": process, "tid": number, "cat": row}
        for number in sorted(rows):
            name = row if not number else f"{row} ({number + 1})"
            yield _named("thread_name", process, place * MOST_ROWS + number, name)
            order = place * MOST_ROWS + number
            yield {**_named("thread_sort_index", process, order, ""), "args": {"sort_index": order}}


def _row(event: Event, rows: dict[int, list[float]]) -> int:
    """Return the first row on which the event crosses no other event.

    `rows` has the ends of each row's open events, innermost last.
    """
    start, end = event["ts"], event["ts"] + event.get("dur", 0.0)
    for number in range(MOST_ROWS):
        open_ = rows.setdefault(number, [])
        while open_ and open_[-1] <= start:
            open_.pop()
        if not open_ or end <= open_[-1]:
            open_.append(end)
            return number
    return MOST_ROWS - 1


def _work(timed: TimedWork, part: StepMetrics) -> Event:
    work = timed.work
    facts = {"step": part.step, "size": work.size, "cached": work.cached, "line": work.call, "cause": work.cause}
    arguments = {name: value for name, value in facts.items() if value not in (None, "")}
    if work.seconds is None:
        return {"ph": "i", "s": "t", "name": work.name, "ts": round(timed.at * MICROSECONDS, 3), "args": arguments}
    return _slice(work.name, timed.at, work.seconds, arguments)


def _slice(name: str, at: float, seconds: float, arguments: Event) -> Event:
    # Rounded to nanoseconds: slices that follow each other without a gap must not overlap.
    start, end = round(at * MICROSECONDS, 3), round((at + seconds) * MICROSECONDS, 3)
    return {"ph": "X", "name": name, "ts": start, "dur": round(end - start, 3), "args": arguments}


def _counters(part: StepMetrics, process: int) -> Iterator[Event]:
    for reading, name in COUNTERS.items():
        if reading in part.memory:
            ended = round((part.at + part.seconds) * MICROSECONDS, 3)
            value = {"bytes": part.memory[reading]}
            yield {"ph": "C", "cat": "memory", "name": name, "pid": process, "ts": ended, "args": value}


def _named(what: str, process: int, row: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": row, "ts": 0, "args": {"name": name}}
