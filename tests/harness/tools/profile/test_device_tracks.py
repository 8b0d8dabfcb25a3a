"""A device's rows in the trace that viewers draw: nothing crosses, arrows end at their kernels, memory is a counter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numdrift.harness.tools.profile.device_tracks import LANE, RANGES, device_names, device_tracks
from numdrift.harness.tools.profile.trace_file import TraceWriter

from .cuda_trace import ADD, MUL, OTHER_STREAM, STREAM, cuda_step, memory, work

NAMES = {0: "GPU 0: NVIDIA H200"}


def check_for_viewers(events: Iterable[Mapping[str, Any]]) -> None:
    """What Perfetto needs of a Chrome trace: slices with times that lie within each other or beside each other on each
    row, counters with numbers, names of rows, and arrows that end within a slice."""
    rows: dict[tuple[Any, Any], list[tuple[int, int]]] = {}
    for event in events:
        assert event["ph"] in ("X", "M", "C", "i", "s", "f"), event
        assert "pid" in event and (event["ph"] == "C" or "tid" in event), event
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            assert event["name"] and event["dur"] >= 0, event
            rows.setdefault((event["pid"], event["tid"]), []).append((start, start + round(event["dur"] * 1000)))
        elif event["ph"] == "C":
            assert event["args"] and all(isinstance(one, (int, float)) for one in event["args"].values())
        elif event["ph"] == "M":
            assert isinstance(event["args"], dict)
    for row, slices in rows.items():
        open_: list[int] = []
        for start, end in sorted(slices, key=lambda one: (one[0], -one[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1], f"a slice of {row} at {start} ends after what it lies in"
            open_.append(end)
    for event in events:
        if event["ph"] == "f":
            at = round(event["ts"] * 1000)
            ends = rows.get((event["pid"], event["tid"]), [])
            assert any(start <= at <= end for start, end in ends), event


def test_work_stays_on_the_row_of_its_stream() -> None:
    events = device_tracks(cuda_step(), NAMES)
    found = {(one["pid"], one["tid"]) for one in events if one.get("cat") in ("kernel", "gpu_memcpy")}
    assert found == {STREAM, OTHER_STREAM}
    check_for_viewers(events)


def test_kernels_of_a_graph_that_run_at_once_on_one_stream_get_a_row_each() -> None:
    events = device_tracks([*work(ADD, 0, 40, 1, 1), *work(MUL, 10, 50, 2, 1), *work(ADD, 40, 45, 3, 1)], NAMES)
    rows = [one["tid"] for one in events if one["ph"] == "X"]
    assert rows == [7, 7 + LANE, 7]
    assert [one["tid"] for one in events if one["ph"] == "f"] == rows, "an arrow ends where its kernel is"
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert names == {7 + LANE: "stream 7 (2)"}
    check_for_viewers(events)


def test_ranges_are_on_a_row_of_their_own_and_do_not_cross() -> None:
    ranges = [one for one in device_tracks(cuda_step(), NAMES) if one.get("cat") == "gpu_user_annotation"]
    assert {one["tid"] for one in ranges} == {7 + RANGES}
    found = {one["name"]: (one["ts"], one["dur"]) for one in ranges}
    assert found["phase: forward"] == (149, 132), "it ends where the next one begins"
    assert found["phase: backward"] == (281, 381)


def test_the_memory_of_the_device_is_a_counter_and_that_of_the_host_is_left_out() -> None:
    counters = [one for one in device_tracks(cuda_step(), NAMES) if one["ph"] == "C"]
    allocated = [(one["ts"], one["args"]["bytes"]) for one in counters if one["name"] == "memory allocated"]
    assert allocated == [(15, 1000), (500, 3000), (600, 1500), (730, 9000)]
    assert {one["pid"] for one in counters} == {0}
    assert not list(device_tracks([memory(1, 2, 3, kind=0)], NAMES))


def test_the_process_of_a_device_is_called_as_the_device() -> None:
    trace = {"traceEvents": cuda_step(), "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1}]}
    assert device_names(trace) == NAMES
    assert device_names({"traceEvents": cuda_step()}) == {0: "GPU 0"}
    (named,) = [one for one in device_tracks(cuda_step(), NAMES) if one["name"] == "process_name"]
    assert named["args"] == {"name": "GPU 0: NVIDIA H200"}


def test_the_file_of_all_steps_has_the_device_of_each(tmp_path: Path) -> None:
    # given a stream that a later step is the first to use
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    first = [one for one in cuda_step(3) if one.get("tid") != OTHER_STREAM[1]]
    path = tmp_path / "trace.json"
    # when
    with TraceWriter(path) as writer:
        for base, events in ((1_000_000, first), (3_000_000, cuda_step(4))):
            writer.add({**head, "baseTimeNanoseconds": base, "traceEvents": events})
    # then
    whole = json.loads(path.read_text())
    check_for_viewers(whole["traceEvents"])
    kernels = [one for one in whole["traceEvents"] if one.get("cat") == "kernel"]
    assert [one["ts"] for one in kernels if one["name"] == ADD] == [300, 2300]
    named = [(one["name"], one["tid"]) for one in whole["traceEvents"] if one["ph"] == "M" and one["pid"] == 0]
    assert named.count(("thread_name", 7)) == 1
    assert named.count(("thread_name", 13)) == 1, "the second step's stream has a name, too"
    correlations = [one["args"]["correlation"] for one in kernels]
    assert len(correlations) - len(set(correlations)) == 1, "only the graph's second kernel shares one"
