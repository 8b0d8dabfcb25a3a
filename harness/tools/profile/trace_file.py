"""One Chrome trace, assembled from the traces of several steps."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ...errors import JournalError, UsageError
from ...records.tools.profile_record import PROFILE, TRACE
from ...runs.recorded_run import RecordedRun
from .device_tracks import device_names, device_tracks
from .step_times import EXECUTION, LINE
from .trace_slices import EXECUTED, PYTHON, Slice, Thread, slices_of

Event = Mapping[str, Any]

OURS = ("torch/autograd/profiler.py", "torch/profiler/", "numdrift/harness/", "_record_function")
"""Parts of the names of Python calls that belong to the tracing itself. These calls are left out."""

LINKS = ("External id", "Ev Idx", "Python id", "Python parent id", "correlation")
"""Arguments that link events of one trace; each trace numbers them from 0."""


def read_trace(path: Path) -> dict[str, Any]:
    """Return the trace in a file. Raises JournalError if it cannot be read."""
    try:
        trace = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"is not a trace: {error}") from error
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise JournalError(path, "is not a Chrome trace: it has no traceEvents")
    return trace


def with_lines(events: Iterable[Event], lines: Mapping[str, str]) -> list[Event]:
    """Return the events with the line of the script that called each op; `lines` are keyed by External id."""
    located = []
    for event in events:
        arguments = event.get("args") or {}
        line = lines.get(str(arguments.get("External id", "")))
        added = line is not None and event.get("cat") == "cpu_op"
        located.append({**event, "args": {**arguments, LINE: line}} if added else event)
    return located


class TraceWriter:
    """A writer of a trace, with one step in memory at a time; the file appears when the writer is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partly = path.with_name(f".{path.name}.part")
        self._file: IO[str] | None = None
        self._base = 0
        self._steps = 0
        self._named: set[tuple[Any, Any, Any]] = set()

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
        separator = "\n" if self._file is None else ",\n"
        if self._file is None:
            self._base = base
            head = {name: value for name, value in trace.items() if name not in ("traceEvents", "traceName")}
            self._file = self._partly.open("w", encoding="utf-8")
            self._file.write(json.dumps(head)[:-1] + ', "traceEvents": [')
        shift = (base - self._base) / 1000  # nanoseconds; a trace is in microseconds
        laid_out = device_tracks(shown(trace["traceEvents"]), device_names(trace))
        for event in _moved(laid_out, shift, self._steps):
            if event["ph"] == "M" and not self._is_new(event):
                continue
            self._file.write(separator + json.dumps(event))
            separator = ",\n"
        self._steps += 1

    def _is_new(self, event: Event) -> bool:
        """Check whether the name of a process or thread is new in the file; most names repeat in each step's trace."""
        name = (event["name"], event.get("pid"), event.get("tid"))
        is_new = name not in self._named
        self._named.add(name)
        return is_new


def _moved(events: Iterable[Event], shift: float, number: int) -> Iterator[Event]:
    """Yield the events shifted to the clock of the first step, with links that differ from other steps' links."""
    for event in events:
        moved = dict(event)
        if "ts" in event:
            moved["ts"] = event["ts"] + shift
        if event["ph"] in ("s", "t", "f"):
            moved["id"] = f"{number}.{event['id']}"
        arguments = event.get("args") or {}
        linked = {name: arguments[name] for name in LINKS if isinstance(arguments.get(name), int)}
        # The upper half of each number is the index of the step, so the links of two steps differ. The links of the
        # first step stay unchanged.
        if number and linked:
            apart = {name: (number << 32) + value for name, value in linked.items()}
            moved["args"] = {**arguments, **apart}
        yield moved


def shown(events: Iterable[Event]) -> list[Event]:
    """Return the events in a form that viewers can draw.

    Executions of lazy graphs receive a name. Python calls that partly overlap another event, such as the calls that
    begin and end ranges, are left out.
    """
    kept: list[Event] = []
    for event in events:
        python = event.get("cat") == PYTHON
        if not (python and any(part in event["name"] for part in OURS)):
            nameless = event.get("cat") == "cpu_op" and not event.get("name")
            kept.append({**event, "name": EXECUTION} if nameless else event)
    # `open_` are the slices that a thread is in, innermost last. A Python call is left out if it ends before a slice
    # that began within the call, or after the slice within which the call began.
    misnested: set[tuple[Any, Thread]] = set()
    open_: dict[Thread, list[Slice]] = {}
    for entry in slices_of(kept, (*EXECUTED, PYTHON)):
        around = open_.setdefault(entry.thread, [])
        while around and around[-1].end <= entry.start:
            around.pop()
        while around and around[-1].end < entry.end and PYTHON == around[-1].category != entry.category:
            misnested.add((around.pop().arguments.get("Python id"), entry.thread))
        if around and around[-1].end < entry.end and entry.category == PYTHON:
            misnested.add((entry.arguments.get("Python id"), entry.thread))
        else:
            around.append(entry)

    def is_misnested(event: Event) -> bool:
        number = (event.get("args") or {}).get("Python id")
        return event.get("cat") == PYTHON and (number, (event.get("pid"), event.get("tid"))) in misnested

    return [kept_event for kept_event in kept if not is_misnested(kept_event)]


# A log directory that TensorBoard's profile plug-in reads: a run for each mode.


def write_log_directory(folder: Path, runs: Sequence[RecordedRun]) -> list[Path]:
    """Copy each run's trace into a folder of its mode, with a file name like those of `tensorboard_trace_handler`.

    An earlier trace of the same run in that folder is replaced. Raises UsageError.
    """
    written = []
    for run in runs:
        source = run.path / PROFILE / TRACE
        if not source.exists():
            continue
        target = folder / f"{run.path.parent.name}_{run.path.name}"
        try:
            # The plug-in distinguishes workers by host and process: the process of the training run, not this one.
            with source.open(encoding="utf-8") as file:
                process = re.search(r'"pid": (\d+)', file.read(1 << 16))
            worker = f"{socket.gethostname()}_{process[1] if process else os.getpid()}"
            target.mkdir(parents=True, exist_ok=True)
            for old in target.glob("*.pt.trace.json"):
                old.unlink()
            path = target / f"{worker}.{time.time_ns()}.pt.trace.json"
            shutil.copyfile(source, path)
        except OSError as error:
            raise UsageError(f"--tensorboard {folder} cannot be written: {error.strerror}") from None
        written.append(path)
    return written
