"""The trace and the tables of a run, made from the files that its process left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import JournalError, UsageError
from ...records.modes.mode_spec import parse_mode
from ...records.tools.device_profile import DeviceProfile
from ...records.tools.profile_record import (
    EVENTS,
    PROFILE,
    TABLES,
    TRACE,
    WORKING,
    BlockRow,
    ExecutionRow,
    KernelRow,
    OpRow,
    PhaseRow,
    RunProfile,
    UntracedStep,
    lines_of,
    read_profile,
)
from ...runs.manifest import RunManifest
from ...runs.recorded_run import RecordedRun
from .device_times import DeviceTimes
from .step_times import StepTimes, TraceReading
from .trace_file import TraceWriter, read_trace, with_lines


@dataclass(slots=True)
class _TraceEvents:
    """The recorded events of a profile, by kind."""

    plan: Mapping[str, Any] = field(default_factory=dict)
    traced: list[Mapping[str, Any]] = field(default_factory=list)
    untraced: list[Mapping[str, Any]] = field(default_factory=list)
    kernels: list[Mapping[str, Any]] = field(default_factory=list)
    device: Mapping[str, Any] = field(default_factory=dict)
    over: Mapping[str, Any] = field(default_factory=dict)


def profile_of(run: RecordedRun, *, keep_working: bool = True) -> RunProfile:
    """Return the profile of a run. Read it from disk if it exists, else make it from the files of the run's process.

    Without `keep_working`, the files of the individual steps are removed once the trace of all steps is written. Raises
    UsageError for a run that was not profiled.
    """
    folder = run.path / PROFILE
    if (folder / TABLES).exists():
        return read_profile(folder / TABLES)
    if not (folder / EVENTS).exists():
        raise UsageError(
            f"{run.path} was not profiled; `numdrift profile {run.manifest.reproducer} "
            f"--modes {run.manifest.mode}` profiles it"
        )
    profile = _make(run, folder)
    profile.write(folder / TABLES)
    if not keep_working:
        shutil.rmtree(folder / WORKING, ignore_errors=True)
        (folder / EVENTS).unlink(missing_ok=True)
    return profile


def _make(run: RecordedRun, folder: Path) -> RunProfile:
    events = _events_of(folder / EVENTS)
    notices = [text for text in run.manifest.notices if "profile" in text]
    lazy = not parse_mode(run.manifest.spec).capabilities.has_values
    times, of_device, steps, size = StepTimes(), DeviceTimes(), [], 0
    # Only one step's trace is in memory at a time; the trace of a large model takes up hundreds of megabytes.
    with TraceWriter(folder / TRACE) as writer:
        for event in events.traced:
            path = folder / WORKING / event["file"]
            try:
                trace = read_trace(path)
            except JournalError as error:
                notices.append(f"the trace of step {event['step']} is lost: {error}")
                continue
            if lines_of(path).exists():
                lines_by_id = json.loads(lines_of(path).read_text(encoding="utf-8"))
                short = {number: _short(line) for number, line in lines_by_id.items()}
                trace = {**trace, "traceEvents": with_lines(trace["traceEvents"], short)}
            reading = TraceReading(trace["traceEvents"], lazy=lazy, blocks=event.get("blocks", {}))
            times.add(reading.times)
            of_device.add(int(event["step"]), trace["traceEvents"], reading)
            writer.add(trace)
            steps.append(event)
    if steps:
        size = (folder / TRACE).stat().st_size
    return _profile(run.manifest, events, times, of_device, steps, size, notices)


def _short(line: str) -> str:
    """Return `train.py:12` for a line with its full path."""
    return line.rpartition("/")[2]


def _profile(
    manifest: RunManifest,
    events: _TraceEvents,
    times: StepTimes,
    of_device: DeviceTimes,
    steps: Sequence[Mapping[str, Any]],
    size: int,
    notices: list[str],
) -> RunProfile:
    whole = sum(times.walls) or 1.0
    kernels, device = [], _device(events, of_device) if events.device and steps else None
    for kernel in events.kernels:
        if "problem" in kernel:
            notices.append(f"the ops in a kernel could not be read: {kernel['problem']}")
        else:
            lines = [_short(line) for line in kernel["lines"]]
            kernels.append(KernelRow(kernel["name"], kernel["ops"], kernel["modules"], lines))
    # Traces are in microseconds, tables in milliseconds.
    return RunProfile(
        mode=manifest.mode,
        type=str(events.plan.get("kind", "")),
        asked=str(events.plan.get("steps", "")),
        steps=[int(step["step"]) for step in steps],
        partial=bool(steps) and not steps[-1]["whole"],
        untraced=[UntracedStep(step["step"], step["seconds"], step.get("compiled")) for step in events.untraced],
        over=str(events.over.get("why", "killed")),
        bytes=size,
        step_milliseconds=[wall / 1000 for wall in times.walls],
        own_milliseconds=times.own / 1000,
        phases=[PhaseRow(name, spent.time / 1000, spent.time / whole) for name, spent in times.phases.items()],
        blocks=_blocks(times, None if device is None or device.problem else of_device),
        ops=[
            OpRow(key.op, key.kind, key.phase, key.module, key.line, spent.calls, spent.time / 1000)
            for key, spent in sorted(times.ops.items(), key=lambda pair: -pair[1].time)
        ],
        executions=[
            ExecutionRow(cause, line, spent.calls, spent.time / 1000)
            for (cause, line), spent in times.executions.items()
        ],
        kernels=kernels,
        notices=notices,
        problem="" if steps else _why_none(manifest, events),
        compiled=[step.get("compiled") for step in steps],
        device=device,
    )


def _device(events: _TraceEvents, times: DeviceTimes) -> DeviceProfile:
    """Return the device's profile. torch may claim to support a device and then report no work done on it."""
    kind, problem = str(events.device["kind"]), str(events.device["problem"])
    if not problem and not times.steps:
        problem = (
            f"torch's profiler reported no work on {kind}: another profiler may be using the device, this machine may "
            "not allow profiling, a plug-in may not report its work, or the script computes on another device"
        )
    steps = [*events.traced, *events.untraced]
    return times.profile(kind, problem, {step["step"]: step["memory"] for step in steps if "memory" in step})


def _blocks(times: StepTimes, of_device: DeviceTimes | None) -> list[BlockRow]:
    whole = sum(times.walls) or 1.0
    launched = None if of_device is None else of_device.blocks
    return [
        BlockRow(
            name,
            spent.calls,
            spent.time / 1000,
            spent.time / whole,
            None if launched is None else launched.get(name, 0.0) / 1000,
        )
        for name, spent in times.blocks.items()
    ]


def _why_none(manifest: RunManifest, events: _TraceEvents) -> str:
    """Return the reason why the trace has no step, and the remedy."""
    # The best explanation wins: a failure of the tracing, then a failure of the script, then the requested steps.
    plan, steps = events.plan.get("steps", ""), manifest.steps
    failed = next((text for text in manifest.notices if text.startswith("profile failed")), "")
    if failed:
        return failed
    if events.over.get("why") == "profiler":
        return "the script runs its own torch profiler, and only one can run at a time"
    if manifest.failed:
        return (
            f"the script ended ({manifest.status}: {manifest.message}) before it finished the first step to trace "
            f"({plan})"
        )
    if not steps:
        return (
            "the script reached no step, so there was none to trace; if it trains in another way, call "
            "numdrift.step() at the end of each step"
        )
    last = f"0-{steps - 1}" if steps > 1 else "0"
    count = "1 step" if steps == 1 else f"{steps} steps"
    return f"the script has {count}, but none of the requested steps {plan}; choose from --steps {last}"


def _events_of(path: Path) -> _TraceEvents:
    events = _TraceEvents()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line of a killed process
        kind = event.pop("event")
        if kind in ("plan", "device", "over"):
            setattr(events, kind, event)
        elif kind == "kernel":
            events.kernels.append(event)
        elif kind in ("traced", "untraced"):
            getattr(events, kind).append(event)
    return events
