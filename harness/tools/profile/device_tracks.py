"""A device's tracks, arranged for viewers.

The work of each stream is on rows of slices that do not cross, and the stream's ranges are on a separate row. The
device's memory is shown as counters.

A viewer drops a slice that begins within another slice and outlasts it. Such slices occur on a stream if a graph of
kernels runs several kernels at once. They also occur among ranges, which the profiler makes a little longer than the
work in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .trace_slices import DEVICE_RANGE, MEMORY, ON_DEVICE

Event = Mapping[str, Any]
Track = tuple[Any, Any]

RANGES, LANE = 1_000_000, 10_000_000
"""The offsets from a stream's number to the row of its ranges, and to each further row of its work."""

NANOSECONDS = 1000  # in a microsecond, which is the unit of a trace


def device_tracks(events: Sequence[Event], devices: Mapping[int, str]) -> list[Event]:
    """Return the events with the rows of devices arranged; `devices` are device names by number."""
    placed: dict[int, Event] = {}
    moved: dict[tuple[Any, Any, Any], Any] = {}
    rows: dict[Track, str] = {}
    for track, work in _by_track(events).items():
        for number, event, row, name in (*_work(track, work), *_ranges(track, work)):
            placed[number] = event
            if row != track[1]:
                rows[track[0], row] = name
                moved[track[0], track[1], event["ts"]] = row
    made: list[Event] = []
    for number, event in enumerate(events):
        if event.get("name") == MEMORY:
            made += _counters(event)
        elif event.get("ph") == "f":  # an arrow from a launch ends at the kernel's new row
            row = moved.get((event.get("pid"), event.get("tid"), event.get("ts")), event.get("tid"))
            made.append({**event, "tid": row})
        else:
            made.append(placed.get(number, event))
    first = min((drawn["ts"] for drawn in placed.values()), default=0)
    return [*(_named(drawn, devices) for drawn in made), *_rows_named(rows, events, first)]


def _by_track(events: Sequence[Event]) -> dict[Track, list[tuple[int, Event]]]:
    """Group the device's events, with their indices, by stream, in the order in which viewers draw them."""
    tracks: dict[Track, list[tuple[int, Event]]] = {}
    for number, event in enumerate(events):
        if event.get("ph") == "X" and (event.get("cat") in ON_DEVICE or event.get("cat") == DEVICE_RANGE):
            tracks.setdefault((event.get("pid"), event.get("tid")), []).append((number, event))
    for numbered_events in tracks.values():
        numbered_events.sort(key=lambda numbered: (_start(numbered[1]), -_end(numbered[1])))
    return tracks


def _start(event: Event) -> int:
    return round(float(event["ts"]) * NANOSECONDS)


def _end(event: Event) -> int:
    return _start(event) + round(float(event["dur"]) * NANOSECONDS)


def _work(track: Track, work: Sequence[tuple[int, Event]]) -> Iterator[tuple[int, Event, Any, str]]:
    """Yield each piece of work with its row, the first row that is free when the piece begins."""
    ends: list[int] = []
    for number, event in work:
        if event["cat"] == DEVICE_RANGE:
            continue
        lane = next((place for place, end in enumerate(ends) if end <= _start(event)), len(ends))
        ends[lane : lane + 1] = [_end(event)]
        row = track[1] + lane * LANE if isinstance(track[1], int) else track[1]
        yield number, {**event, "tid": row}, row, f"stream {track[1]} ({lane + 1})"


def _ranges(track: Track, work: Sequence[tuple[int, Event]]) -> Iterator[tuple[int, Event, Any, str]]:
    """Yield each range on the row of ranges, cut where a range begins that outlasts it."""
    row, ranges = track[1] + RANGES if isinstance(track[1], int) else track[1], dict[int, dict[str, Any]]()
    open_: list[tuple[int, int]] = []  # number and end, the innermost last
    for number, event in work:
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
    """Yield the memory of a device at an instant as counters; host memory is not shown."""
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
    """Return the event, with the device's name as the name of its process."""
    names = event.get("ph") == "M" and event.get("name") == "process_name" and event.get("pid") in devices
    return {**event, "args": {"name": devices[event["pid"]]}} if names else event


def _rows_named(rows: Mapping[Track, str], events: Iterable[Event], first: float) -> Iterator[Event]:
    """Yield the events that name the new rows and place each row next to its stream."""
    orders = {
        (event.get("pid"), event.get("tid")): event["args"]["sort_index"]
        for event in events
        if event.get("ph") == "M" and event.get("name") == "thread_sort_index"
    }
    for (process, row), name in rows.items():
        facts: list[tuple[str, dict[str, Any]]] = [("thread_name", {"name": name})]
        stream = row % LANE % RANGES
        facts.append(("thread_sort_index", {"sort_index": orders.get((process, stream), stream)}))
        for what, arguments in facts:
            yield {"ph": "M", "name": what, "ts": first, "pid": process, "tid": row, "args": arguments}


def device_names(trace: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of the devices with work in a trace, by number: `GPU 0: NVIDIA H200`."""
    events = trace["traceEvents"]
    working = {event.get("pid") for event in events if event.get("cat") in ON_DEVICE}
    names = {
        event["pid"]: str(event["args"]["labels"])
        for event in events
        if event.get("name") == "process_labels" and event.get("pid") in working
    }
    for device in trace.get("deviceProperties") or []:
        if device.get("id") in names and device.get("name"):
            names[device["id"]] += f": {device['name']}"
    return names
