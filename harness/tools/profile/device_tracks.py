"""A device's tracks as viewers draw them: a stream's work on rows of slices that do not cross, its ranges on a row of
their own, and its memory as counters.

A viewer drops a slice that begins within another and ends after it. On a stream that happens where a graph of kernels
runs several at once, and to the ranges, which the profiler makes a little longer than the work in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .trace_slices import DEVICE_RANGE, MEMORY, ON_DEVICE

Event = Mapping[str, Any]
Track = tuple[Any, Any]

RANGES, LANE = 1_000_000, 10_000_000
"""What is added to the number of a stream for the row of its ranges, and for each further row of its work."""

NANOSECONDS = 1000  # of a microsecond, which is the unit of a trace


def device_tracks(events: Sequence[Event], devices: Mapping[int, str]) -> list[Event]:
    """The events with the rows of devices laid out; `devices` are names of devices by their numbers."""
    placed: dict[int, Event] = {}
    moved: dict[tuple[Any, Any, Any], Any] = {}
    rows: dict[Track, str] = {}
    for track, found in _by_track(events).items():
        for number, event, row, name in (*_work(track, found), *_ranges(track, found)):
            placed[number] = event
            if row != track[1]:
                rows[track[0], row] = name
                moved[track[0], track[1], event["ts"]] = row
    made: list[Event] = []
    for number, event in enumerate(events):
        if event.get("name") == MEMORY:
            made += _counters(event)
        elif event.get("ph") == "f":  # an arrow from a launch ends where its kernel is now
            row = moved.get((event.get("pid"), event.get("tid"), event.get("ts")), event.get("tid"))
            made.append({**event, "tid": row})
        else:
            made.append(placed.get(number, event))
    first = min((one["ts"] for one in placed.values()), default=0)
    return [*(_named(one, devices) for one in made), *_rows_named(rows, events, first)]


def _by_track(events: Sequence[Event]) -> dict[Track, list[tuple[int, Event]]]:
    """What runs on a device, with its number among the events, by stream; in the order in which viewers draw it."""
    tracks: dict[Track, list[tuple[int, Event]]] = {}
    for number, event in enumerate(events):
        if event.get("ph") == "X" and (event.get("cat") in ON_DEVICE or event.get("cat") == DEVICE_RANGE):
            tracks.setdefault((event.get("pid"), event.get("tid")), []).append((number, event))
    for found in tracks.values():
        found.sort(key=lambda one: (_start(one[1]), -_end(one[1])))
    return tracks


def _start(event: Event) -> int:
    return round(float(event["ts"]) * NANOSECONDS)


def _end(event: Event) -> int:
    return _start(event) + round(float(event["dur"]) * NANOSECONDS)


def _work(track: Track, found: Sequence[tuple[int, Event]]) -> Iterator[tuple[int, Event, Any, str]]:
    """Each piece of work with its row: the first one on which nothing runs at that time."""
    ends: list[int] = []
    for number, event in found:
        if event["cat"] == DEVICE_RANGE:
            continue
        lane = next((place for place, end in enumerate(ends) if end <= _start(event)), len(ends))
        ends[lane : lane + 1] = [_end(event)]
        row = track[1] + lane * LANE if isinstance(track[1], int) else track[1]
        yield number, {**event, "tid": row}, row, f"stream {track[1]} ({lane + 1})"


def _ranges(track: Track, found: Sequence[tuple[int, Event]]) -> Iterator[tuple[int, Event, Any, str]]:
    """Each range on the row of ranges, cut where the next one begins."""
    row, ranges = track[1] + RANGES if isinstance(track[1], int) else track[1], dict[int, dict[str, Any]]()
    open_: list[tuple[int, int]] = []  # number and end, the innermost last
    for number, event in found:
        if event["cat"] != DEVICE_RANGE:
            continue
        start, end = _start(event), _end(event)
        while open_ and open_[-1][1] <= start:
            open_.pop()
        while open_ and open_[-1][1] < end:
            outer = ranges[open_.pop()[0]]
            outer["dur"] = (start - _start(outer)) / NANOSECONDS
        ranges[number] = {**event, "tid": row}
        open_.append((number, end))
    for number, made in ranges.items():
        yield number, made, row, f"stream {track[1]} ranges"


def _counters(event: Event) -> Iterator[Event]:
    """The memory of a device at an instant; that of the host is not shown."""
    facts = event.get("args") or {}
    if facts.get("Device Type"):
        for name in ("Allocated", "Reserved"):
            yield {
                "ph": "C",
                "cat": "memory",
                "name": f"memory {name.lower()}",
                "pid": max(0, int(facts.get("Device Id", 0))),
                "ts": event["ts"],
                "args": {"bytes": int(facts[f"Total {name}"])},
            }


def _named(event: Event, devices: Mapping[int, str]) -> Event:
    """The event; that which names the process of a device says which device it is."""
    names = event.get("ph") == "M" and event.get("name") == "process_name" and event.get("pid") in devices
    return {**event, "args": {"name": devices[event["pid"]]}} if names else event


def _rows_named(rows: Mapping[Track, str], events: Iterable[Event], first: float) -> Iterator[Event]:
    """The names of rows that were made, each beside its stream."""
    orders = {
        (one.get("pid"), one.get("tid")): one["args"]["sort_index"]
        for one in events
        if one.get("ph") == "M" and one.get("name") == "thread_sort_index"
    }
    for (process, row), name in rows.items():
        facts: list[tuple[str, dict[str, Any]]] = [("thread_name", {"name": name})]
        stream = row % LANE % RANGES
        facts.append(("thread_sort_index", {"sort_index": orders.get((process, stream), stream)}))
        for what, arguments in facts:
            yield {"ph": "M", "name": what, "ts": first, "pid": process, "tid": row, "args": arguments}


def device_names(trace: Mapping[str, Any]) -> dict[int, str]:
    """The devices that a trace has work of, by number: `GPU 0: NVIDIA H200`."""
    events = trace["traceEvents"]
    working = {one.get("pid") for one in events if one.get("cat") in ON_DEVICE}
    found = {
        one["pid"]: str(one["args"]["labels"])
        for one in events
        if one.get("name") == "process_labels" and one.get("pid") in working
    }
    for one in trace.get("deviceProperties") or []:
        if one.get("id") in found and one.get("name"):
            found[one["id"]] += f": {one['name']}"
    return found
