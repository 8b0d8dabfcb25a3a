"""Metrics as a trace that Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numdrift.harness.tools.metrics.metrics_trace import MOST_ROWS, metrics_trace

from ..profile.test_device_tracks import check_for_viewers
from .test_metrics_summary import metrics, part, work


def traced(folder: Path, *works: list[Any], **fields: Any) -> list[dict[str, Any]]:
    run = metrics(folder, part("setup", [], seconds=2.0), part("step", list(works), step=0, at=2.0, **fields))
    events: list[dict[str, Any]] = json.loads(json.dumps(metrics_trace([run])))["traceEvents"]
    check_for_viewers(events)
    return events


def slices(events: list[dict[str, Any]], row: str) -> list[tuple[str, float, float, int]]:
    return [
        (one["name"], one["ts"], one["dur"], one["tid"]) for one in events if one["ph"] == "X" and one["cat"] == row
    ]


def test_steps_follow_each_other_in_microseconds(tmp_path: Path) -> None:
    assert slices(traced(tmp_path), "steps") == [("setup", 0, 2e6, 0), ("step 0", 2e6, 1e6, 0)]


def test_each_kind_of_work_has_its_row(tmp_path: Path) -> None:
    again = [*work("compile", "graph 0/1", 0.5, 7, False, "train.py:9", at=2.1), "a guard"]
    events = traced(tmp_path, again, work("transfer", "to device", 0.25, 64, None, "train.py:7", at=2.5))
    assert slices(events, "compile") == [("graph 0/1", 2.1e6, 0.5e6, MOST_ROWS)]
    assert slices(events, "transfer") == [("to device", 2.5e6, 0.25e6, 3 * MOST_ROWS)]
    compiled = next(one for one in events if one["name"] == "graph 0/1")
    assert compiled["args"] == {"step": 0, "size": 7, "cached": False, "line": "train.py:9", "cause": "a guard"}
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert names == {0: "steps", MOST_ROWS: "compile", 3 * MOST_ROWS: "transfer"}


def test_work_that_crosses_other_work_gets_a_row_of_its_own(tmp_path: Path) -> None:
    events = traced(
        tmp_path,
        work("execute", "a", 0.2, at=2.1),
        work("execute", "b", 0.2, at=2.2),
        work("execute", "c", 0.05, at=2.35),
    )
    assert [(name, row % MOST_ROWS) for name, _, _, row in slices(events, "execute")] == [("a", 0), ("b", 1), ("c", 0)]


def test_work_that_was_not_timed_is_an_instant(tmp_path: Path) -> None:
    (event,) = [one for one in traced(tmp_path, work("fallback", "aten::sort", at=2.5)) if one["ph"] == "i"]
    assert (event["name"], event["ts"]) == ("aten::sort", 2.5e6)


def test_memory_is_counted_at_the_end_of_each_step(tmp_path: Path) -> None:
    events = traced(tmp_path, memory={"resident": 100, "device": 7, "device_reserved": 9, "device_peak": 8})
    counters = {one["name"]: (one["ts"], one["args"]["bytes"]) for one in events if one["ph"] == "C"}
    assert counters == {
        "memory resident": (3e6, 100),
        "device memory allocated": (3e6, 7),
        "device memory reserved": (3e6, 9),
    }


def test_each_run_is_a_process(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    runs = [metrics(tmp_path / name, part("step", [], step=0)) for name in ("a", "b")]
    events: Any = metrics_trace(runs)["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert names == {1: "a (lazy)", 2: "b (lazy)"}
