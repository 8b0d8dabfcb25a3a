"""One Chrome trace of several: on one clock, links told apart, nothing that a viewer cannot draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import JournalError
from numdrift.harness.tools.profile.trace_file import TraceWriter, read_trace, shown, with_lines

from .events import range_, slice_


def trace(base: int, *events: dict[str, Any]) -> dict[str, Any]:
    return {"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": list(events), "traceName": "x"}


def written(path: Path, *traces: dict[str, Any]) -> dict[str, Any]:
    with TraceWriter(path) as writer:
        for one in traces:
            writer.add(one)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_steps_are_on_one_clock_with_links_of_their_own(tmp_path: Path) -> None:
    link = {"ph": "s", "id": 4, "pid": 7, "tid": 7, "ts": 1.0, "cat": "fwdbwd", "name": "fwdbwd"}
    name = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0.0, "args": {"name": "python"}}
    thread = name | {"name": "thread_name", "args": {"name": "thread 7"}}
    whole = written(
        tmp_path / "trace.json",
        trace(1_000_000, name, range_("ProfilerStep#3", 10, 5), link, thread),
        trace(3_000_000, name, range_("ProfilerStep#4", 10, 5), link, thread),
    )
    events = whole["traceEvents"]
    assert [one["ts"] for one in events if one["name"].startswith("ProfilerStep")] == [10, 2010]
    assert len({one["id"] for one in events if one["ph"] == "s"}) == 2
    assert [one["name"] for one in events if one["ph"] == "M"] == ["process_name", "thread_name"]
    assert whole["schemaVersion"] == 1
    assert "traceName" not in whole


def test_a_trace_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError), TraceWriter(tmp_path / "trace.json") as writer:
        writer.add(trace(0, range_("ProfilerStep#3", 0, 1)))
        writer.add({})
    assert not list(tmp_path.iterdir())


def test_a_lazy_graph_is_named() -> None:
    assert [one["name"] for one in shown([slice_("", 0, 1)])] == ["graph execution"]


def test_python_calls_that_end_before_what_they_contain_are_left_out() -> None:
    calls = [
        slice_("train.py(3): main", 0, 100, "python_function", arguments={"Python id": 1}),
        slice_("<built-in method begin>", 10, 5, "python_function", arguments={"Python id": 2}),
        range_("phase: forward", 12, 50),
        slice_("torch/autograd/profiler.py(9): __enter__", 9, 8, "python_function", arguments={"Python id": 3}),
    ]
    assert [one["name"] for one in shown(calls)] == ["train.py(3): main", "phase: forward"]


def test_ops_get_the_line_that_called_them() -> None:
    events = with_lines(
        [slice_("aten::mm", 0, 1, arguments={"External id": 12}), slice_("aten::t", 0, 1)], {"12": "a.py:3"}
    )
    assert events[0]["args"] == {"External id": 12, "Call line": "a.py:3"}
    assert events[1]["args"] == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"traceEvents": 3}'])
def test_what_is_no_trace_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    path.write_text(text)
    with pytest.raises(JournalError, match=r"step\.json") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
