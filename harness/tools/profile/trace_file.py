"""One Chrome trace of the traces of several steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ...errors import JournalError
from .step_times import EXECUTION, LINE
from .trace_slices import EXECUTED, PYTHON, Slice, Thread, slices_of

Event = Mapping[str, Any]

OURS = ("torch/autograd/profiler.py", "torch/profiler/", "numdrift/harness/", "_record_function")
"""What the tracing itself does in Python; it is left out."""

LINKS = ("External id", "Ev Idx", "Python id", "Python parent id", "correlation")
"""Arguments by which events of one trace belong together; each trace counts them from 0 on."""


def read_trace(path: Path) -> dict[str, Any]:
    """The trace in a file. Raises JournalError for one that cannot be read."""
    try:
        trace = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"is no trace: {error}") from error
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise JournalError(path, "is no Chrome trace: it has no traceEvents")
    return trace


def with_lines(events: Iterable[Event], lines: Mapping[str, str]) -> list[Event]:
    """The events, ops with the line of the script that called them; `lines` are by External id."""
    found = []
    for event in events:
        arguments = event.get("args") or {}
        line = lines.get(str(arguments.get("External id", "")))
        added = line is not None and event.get("cat") == "cpu_op"
        found.append({**event, "args": {**arguments, LINE: line}} if added else event)
    return found


class TraceWriter:
    """Writes step after step, so that one step at a time is in memory; the file is in place when it is
    closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partly = path.with_name(f".{path.name}.part")
        self._file: IO[str] | None = None
        self._base = 0
        self._steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        self._file.write("\n]}\n")
        self._file.close()
        if error is None:
            self._partly.replace(self._path)
        else:
            self._partly.unlink()

    def add(self, trace: Mapping[str, Any]) -> None:
        """Append the events of a step's trace."""
        base = int(trace.get("baseTimeNanoseconds") or 0)
        first = self._file is None
        if self._file is None:
            self._base = base
            head = {name: value for name, value in trace.items() if name not in ("traceEvents", "traceName")}
            self._file = self._partly.open("w", encoding="utf-8")
            self._file.write(json.dumps(head)[:-1] + ', "traceEvents": [')
        shift = (base - self._base) / 1000
        for event in _moved(shown(trace["traceEvents"]), shift, self._steps):
            if first or event["ph"] != "M":
                self._file.write(("\n" if first else ",\n") + json.dumps(event))
                first = False
        self._steps += 1


def _moved(events: Iterable[Event], shift: float, number: int) -> Iterator[Event]:
    """The events on the clock of the first step, what links them told apart from what links those of other
    steps."""
    for event in events:
        moved = dict(event)
        if "ts" in event:
            moved["ts"] = event["ts"] + shift
        if event["ph"] in ("s", "t", "f"):
            moved["id"] = f"{number}.{event['id']}"
        arguments = event.get("args") or {}
        linked = {name: arguments[name] for name in LINKS if isinstance(arguments.get(name), int)}
        if number and linked:
            apart = {name: (number << 32) + value for name, value in linked.items()}
            moved["args"] = {**arguments, **apart}
        yield moved


def shown(events: Iterable[Event]) -> list[Event]:
    """The events as a viewer should have them: lazy graphs' executions named, and no Python call that begins
    within something and ends after it, or the other way round, as those do that begin and end ranges: viewers
    cannot draw them."""
    events = [_named(one) for one in events if not _is_ours(one)]
    misnested = {_identity(one) for one in _misnested(slices_of(events, (*EXECUTED, PYTHON)))}
    return [one for one in events if one.get("cat") != PYTHON or _identity_of(one) not in misnested]


def _misnested(slices: Sequence[Slice]) -> Iterator[Slice]:
    """The Python calls that neither lie within what they begin in nor beside it; `slices` are in their
    order."""
    open_: dict[Thread, list[Slice]] = {}
    for one in slices:
        around = open_.setdefault(one.thread, [])
        while around and around[-1].end <= one.start:
            around.pop()
        while around and around[-1].end < one.end and PYTHON == around[-1].category != one.category:
            yield around.pop()
        if around and around[-1].end < one.end and one.category == PYTHON:
            yield one
        else:
            around.append(one)


def _named(event: Event) -> Event:
    if event.get("cat") == "cpu_op" and not event.get("name"):
        return {**event, "name": EXECUTION}
    return event


def _is_ours(event: Event) -> bool:
    return event.get("cat") == PYTHON and any(part in event["name"] for part in OURS)


def _identity(one: Slice) -> tuple[Any, ...]:
    return one.arguments.get("Python id"), one.thread


def _identity_of(event: Event) -> tuple[Any, ...]:
    return (event.get("args") or {}).get("Python id"), (event.get("pid"), event.get("tid"))
