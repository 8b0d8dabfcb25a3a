"""The times of one traced step by phase, by block, and by op with its phase, module and line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from ...records.tools.profile_record import CUT, FORWARD, MODULE, OWN, PHASE, STEP, UNTRAINED
from .trace_slices import EXECUTED, Slice, Thread, nest, slices_of, walk

STANDARD_PHASES = ("forward", "backward", "optimizer", "data")
"""Blocks with these names are phases: the script knows their bounds better than the hooks."""

COMPILE = "compile"
EXECUTION = "graph execution"
OTHER = "other"
COMPILING = " (dynamo_timed)"
"""The suffix of the names under which dynamo and Inductor report their work to the profiler."""

LINE = "Call line"
COMPILED_GRAPH = "CompiledFxGraph"
GENERATED = ("cpp_", "triton_")
"""The prefixes of the names of the kernels that Inductor generates."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class SlicePlace:
    """The place of a slice in the step: its phase, kind, module and line."""

    phase: str = OTHER
    kind: str = ""
    module: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class OpKey:
    """The properties that distinguish ops.

    `kind` is `op` for an op that was executed when it was called, `dispatch` for an op that a lazy core recorded,
    `execution` for an op within the execution of a lazy graph, `kernel` for a generated kernel (on a device: its
    launch), and `compile` for a part of a compiler's work. All are work of the host; `device_times` has the work of
    the device."""

    op: str
    kind: str
    phase: str
    module: str
    line: str


@dataclass(slots=True)
class Spent:
    """A number of calls, and their time in microseconds."""

    calls: int = 0
    time: float = 0.0

    def add(self, time: float, calls: int = 1) -> None:
        self.calls += calls
        self.time += time


@dataclass(slots=True)
class StepTimes:
    """Times of one or more steps.

    phases: the time of the script's thread, divided among the phases
    blocks: the whole time of each block
    ops: the self times of ops, on all threads
    executions: the executions of lazy graphs, by (cause, line)
    """

    phases: dict[str, Spent] = field(default_factory=dict)
    blocks: dict[str, Spent] = field(default_factory=dict)
    ops: dict[OpKey, Spent] = field(default_factory=dict)
    executions: dict[tuple[str, str], Spent] = field(default_factory=dict)
    walls: list[float] = field(default_factory=list)
    own: float = 0.0

    def add(self, other: StepTimes) -> None:
        _grow(self.phases, other.phases)
        _grow(self.blocks, other.blocks)
        _grow(self.ops, other.ops)
        _grow(self.executions, other.executions)
        self.walls += other.walls
        self.own += other.own


def _grow(spent: dict[Key, Spent], by: Mapping[Key, Spent]) -> None:
    for key, added in by.items():
        spent.setdefault(key, Spent()).add(added.time, added.calls)


def step_times(events: Sequence[Mapping[str, Any]], *, lazy: bool, blocks: Mapping[str, int]) -> StepTimes:
    """Return the times of a trace of one step.

    `lazy` is True if a call of an op only records the op, without executing it. `blocks` maps each block of the script
    to the number of times that it was begun.
    """
    return TraceReading(events, lazy=lazy, blocks=blocks).times


class TraceReading:
    """The host side of a trace of one step.

    times: the times of the step
    step: the slice of the step; if the trace has none, it is None and nothing else is read
    outermost: the outermost slices of each thread
    places: the place of each slice
    own: the intervals of numdrift's own recording
    """

    def __init__(self, events: Sequence[Mapping[str, Any]], *, lazy: bool, blocks: Mapping[str, int]) -> None:
        self.times = StepTimes()
        self._plain = "dispatch" if lazy else "op"
        self._blocks = blocks
        self._forward: dict[Any, SlicePlace] = {}
        self._untrained = FORWARD
        self.places: dict[Slice, SlicePlace] = {}
        self.own: list[tuple[float, float]] = []
        self.outermost: Mapping[Thread, Sequence[Slice]] = nest(slices_of(events, EXECUTED))
        everything = walk(chain.from_iterable(self.outermost.values()))
        self.step = next((candidate for candidate in everything if candidate.name.startswith(STEP)), None)
        if self.step is None:
            return
        self._read_step(self.step)
        others = [slices for thread, slices in self.outermost.items() if thread != self.step.thread]
        for event in walk(chain.from_iterable(others)):
            # An event on another thread, such as one of a backward, belongs to the phase that the script's thread is in
            # at that time.
            around = self.places[event.within] if event.within is not None else SlicePlace(self.phase_at(event.start))
            self.places[event] = self._place(event, around)
            self._count(event, self.places[event])

    def innermost(self, thread: Thread, instant: float) -> Slice | None:
        """Return the innermost slice that a thread is in at an instant, None if it is in none."""
        innermost, slices = None, self.outermost.get(thread, ())
        while slices:
            place = bisect_right(slices, instant, key=lambda event: event.start) - 1
            if place < 0 or slices[place].end <= instant:
                break
            innermost = slices[place]
            slices = innermost.children
        return innermost

    def phase_at(self, instant: float) -> str:
        """Return the phase that the script's thread is in at an instant."""
        innermost = None if self.step is None else self.innermost(self.step.thread, instant)
        return OTHER if innermost is None else self.places[innermost].phase

    def is_of_script(self, instant: float) -> bool:
        """Check whether an instant is within the step, but not within numdrift's own recording."""
        step = self.step
        within = step is not None and step.start <= instant < step.end
        return within and not any(began <= instant < ended for began, ended in self.own)

    def op_of(self, event: Slice) -> str | None:
        """Return the op name of a slice, or None for the range of a phase, module or block."""
        name = event.name
        if name.startswith((PHASE, MODULE, STEP)) or name == CUT or self.is_block(event):
            return None
        if event.category == "cpu_op" or self.places[event].kind == "compile" or name.startswith(GENERATED):
            # The name of Inductor's call of a graph has the graph's hash, which is long and differs from run to run.
            return COMPILED_GRAPH if COMPILED_GRAPH in name else name
        return None

    def is_block(self, event: Slice) -> bool:
        return event.name in self._blocks and event.category == "user_annotation"

    def _read_step(self, step: Slice) -> None:
        # If the step has a forward with gradients, a call without gradients belongs to the phase before the call, and
        # so does the time after the call. In any other step, a call without gradients is the forward.
        names = [candidate.name.removeprefix(PHASE) for candidate in walk([step]) if candidate.name.startswith(PHASE)]
        if UNTRAINED in names and FORWARD in names:
            before = [name for name in names[: names.index(UNTRAINED)] if name != OWN]
            self._untrained = before[-1] if before else OTHER
        for event in walk([step]):
            around = SlicePlace() if event is step or event.within is None else self.places[event.within]
            self.places[event] = self._place(event, around)
            self._count(event, self.places[event])
        for event in walk([step]):
            if self.is_block(event) and self.places[event].kind != "compile":
                # The time of numdrift's recording within a block is not part of the block's time.
                own = sum(inner.self_time for inner in walk([event]) if self.places[inner].phase == OWN)
                self.times.blocks.setdefault(event.name, Spent(self._blocks[event.name])).add(event.time - own, 0)
        # The time before the first phase (the loop's own Python) counts as part of that phase.
        stretches = list(self._stretches(step))
        first = next((phase for phase, _, _ in stretches if phase != OTHER), OTHER)
        for phase, began, ended in stretches:
            self.times.phases.setdefault(first if phase == OTHER else phase, Spent()).add(ended - began, 0)
            if phase == OWN:
                self.own.append((began, ended))
        self.times.own = self.times.phases.pop(OWN, Spent()).time
        self.times.walls.append(step.time - self.times.own)

    def _stretches(self, step: Slice) -> Iterator[tuple[str, float, float]]:
        """Yield the phases of the step in order, each with its start and end.

        The gap between two phases, in which tracing closes one and opens the next, belongs to the earlier phase.
        """
        now, last, open_ = step.start, "", [step]
        for event in [*walk(step.children), None]:
            until = step.end if event is None else event.start
            while open_:
                end = min(until, open_[-1].end)
                phase = self.places[open_[-1]].phase
                last = phase if phase != OTHER else last
                yield last or OTHER, now, end
                now = end
                if open_[-1].end > until or (event is not None and event.within is open_[-1]):
                    break
                open_.pop()
            if event is not None:
                open_.append(event)

    def _place(self, event: Slice, around: SlicePlace) -> SlicePlace:
        name = event.name
        if name == PHASE + UNTRAINED:
            return replace(around, phase=self._untrained)
        if name.startswith(PHASE):
            return replace(around, phase=name.removeprefix(PHASE))
        if name.startswith(MODULE):
            return replace(around, module=name.removeprefix(MODULE))
        if self.is_block(event):
            return replace(around, phase=name) if name in STANDARD_PHASES else around
        if name == CUT:
            return replace(around, phase=CUT)
        if name.endswith(COMPILING):
            return replace(around, phase=COMPILE, kind="compile")
        if not name and event.category == "cpu_op":
            return replace(around, phase=EXECUTION, kind="execution")  # the lazy core's executor has an empty name
        place = replace(around, line=str(event.arguments.get(LINE) or "") or around.line)
        number = event.arguments.get("Sequence number")
        if number is not None and event.arguments.get("Fwd thread id"):
            # A backward op belongs to the module whose forward op has this number.
            forward = self._forward.get(number)
            return replace(place, module=forward.module, line=forward.line) if forward else place
        if number is not None:
            self._forward[number] = place
        return place

    def _count(self, event: Slice, place: SlicePlace) -> None:
        name = event.name
        if place.phase == OWN:
            return
        if place.kind == "execution" and not name:
            # A lazy graph is executed by a mark_step, or by the outermost op that needs a value.
            cause, line = CUT, ""
            for around in event.ancestors():
                if around.name == CUT:
                    cause, line = CUT, ""
                    break
                if "::" in around.name and not around.name.startswith("autograd::"):
                    cause, line = around.name, self.places[around].line
            self.times.executions.setdefault((cause, line), Spent()).add(event.time)
            return
        op = self.op_of(event)
        if op is not None:
            kind = place.kind or ("kernel" if name.startswith(GENERATED) else self._plain)
            key = OpKey(op, kind, place.phase, place.module, place.line)
            self.times.ops.setdefault(key, Spent()).add(event.self_time)
