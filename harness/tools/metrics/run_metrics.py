"""Read the metrics of a run, even if a kill has cut them off."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import JournalError, MetricsNotFound
from ...records.tools.backend_work import FILE, REST, SCHEMA, SETUP, StepMetrics, TimedWork, Work
from ...runs.recorded_run import RecordedRun

MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The exceptions that reading a line may raise if numdrift did not write the line."""


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of one run.

    unavailable: the reason why the backend could not be observed, "" if it was observed
    parts: setup, steps and rest in chronological order, up to the end of the run
    counters: the backend's counters for the whole process, or for the recorded parts of a killed run
    report: the backend's own report, "" for a run that was killed
    """

    run: RecordedRun
    backend: str
    executes_at_once: bool
    unavailable: str
    parts: Sequence[StepMetrics]
    counters: Mapping[str, int]
    report: str
    has_ended: bool

    @property
    def steps(self) -> list[StepMetrics]:
        return [part for part in self.parts if part.step is not None]

    @property
    def work(self) -> list[TimedWork]:
        return [timed for part in self.parts for timed in part.work]


def metrics_of(run: RecordedRun) -> RunMetrics:
    """Read a run's metrics.

    Raises MetricsNotFound if the run has none, JournalError for a file that numdrift did not write.
    """
    path = run.path / FILE
    if not path.is_file():
        raise MetricsNotFound(f"{run.path} has no metrics: record them with `numdrift run --metrics`")
    start: dict[str, Any] = {}
    end: dict[str, Any] = {}
    parts: list[StepMetrics] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
                kind = event["event"]
                if kind == "start":
                    start = event
                elif kind == "end":
                    end = event
                elif kind in (SETUP, "step", REST):
                    part = StepMetrics(
                        step=event.get("step"),
                        name="" if kind == "step" else kind,
                        at=float(event["at"]),
                        seconds=float(event["seconds"]),
                        phases=dict(event["phases"]),
                        work=[TimedWork(Work(*entry[:6], *entry[7:]), float(entry[6])) for entry in event["work"]],
                        counters=dict(event["counters"]),
                        memory=dict(event["memory"]),
                    )
                    parts.append(part)
            except MALFORMED as error:
                # Only the last line may be cut off by a kill; it then has no line end.
                if line.endswith(b"\n"):
                    raise JournalError(path, f"line {number} was not written by numdrift: {error}") from error
    if start.get("schema", SCHEMA) != SCHEMA:
        raise JournalError(path, f"has schema {start['schema']}; this version of numdrift reads schema {SCHEMA}")
    # The last line has the counters of the whole process; for a killed run, the counters of its parts are summed.
    summed: Counter[str] = Counter()
    for part in parts:
        summed.update(part.counters)
    return RunMetrics(
        run,
        str(start.get("backend", "")),
        bool(start.get("executes_at_once")),
        str(start.get("unavailable", "")),
        parts,
        end.get("counters", dict(summed)),
        str(end.get("report", "")),
        bool(end),
    )
