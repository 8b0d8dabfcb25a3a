"""Where the time of one traced step went: by phase, by block, and op by op with its phase, module and line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from ...records.profile_record import CUT, FORWARD, MODULE, OWN, PHASE, STEP, UNTRAINED
from .trace_slices import EXECUTED, Slice, Thread, nest, slices_of, walk

STANDARD_PHASES = ("forward", "backward", "optimizer", "data")
"""Blocks of these names are phases: the script says better than the hooks where they begin and end."""

COMPILE = "compile"
EXECUTION = "graph execution"
OTHER = "other"
COMPILING = " (dynamo_timed)"
"""The end of the names under which dynamo and Inductor show the profiler what they do."""

LINE = "Call line"
COMPILED_GRAPH = "CompiledFxGraph"
GENERATED = ("cpp_", "triton_")
"""The beginning of the names of the kernels that Inductor generates."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class SlicePlace:
    """Where an instant of the trace belongs."""

    phase: str = OTHER
    kind: str = ""
    module: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class OpKey:
    """What ops are told apart by.

    `kind` is `op` for one that was executed where it was called, `dispatch` for one that a lazy core noted,
    `execution` for one within the execution of a lazy graph, `kernel` for a generated one (on a device: its
    launch), and `compile` for a piece of a compiler's work. All are the host's: what a device did is in
    `device_times`."""

    op: str
    kind: str
    phase: str
    module: str
    line: str


@dataclass(slots=True)
class Spent:
    """Calls, and microseconds."""

    calls: int = 0
    time: float = 0.0

    def add(self, time: float, calls: int = 1) -> None:
        self.calls += calls
        self.time += time


@dataclass(slots=True)
class StepTimes:
    """Of one or more steps: `phases` share the time of the script's thread among them, `blocks` have the whole time of
    each block, `ops` own times on every thread, `executions` what made lazy graphs be executed, as (cause, line)."""

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
    for key, one in by.items():
        spent.setdefault(key, Spent()).add(one.time, one.calls)


def step_times(events: Sequence[Mapping[str, Any]], *, lazy: bool, blocks: Mapping[str, int]) -> StepTimes:
    """The times of a trace of one step. `lazy` says that ops are noted when they are called, `blocks` are
    those that the script has begun, and how often."""
    return TraceReading(events, lazy=lazy, blocks=blocks).times


class TraceReading:
    """A trace of one step, read: its `times`, and where everything on the host belongs.

    `step` is the slice of the step, None in a trace without one; nothing else is read then. `outermost` has the slices
    of each thread that lie in no other, `places` where each slice belongs, `own` from when to when numdrift recorded.
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
        self.step = next((one for one in everything if one.name.startswith(STEP)), None)
        if self.step is None:
            return
        self._read_step(self.step)
        others = [found for thread, found in self.outermost.items() if thread != self.step.thread]
        for one in walk(chain.from_iterable(others)):
            # What runs on another thread (a backward does) is of the phase that the script's thread is in meanwhile.
            around = self.places[one.within] if one.within is not None else SlicePlace(self.phase_at(one.start))
            self.places[one] = self._place(one, around)
            self._count(one, self.places[one])

    def innermost(self, thread: Thread, instant: float) -> Slice | None:
        """The innermost slice that a thread is in, None where it is in none."""
        found, slices = None, self.outermost.get(thread, ())
        while slices:
            place = bisect_right(slices, instant, key=lambda one: one.start) - 1
            if place < 0 or slices[place].end <= instant:
                break
            found = slices[place]
            slices = found.children
        return found

    def phase_at(self, instant: float) -> str:
        """The phase that the script's thread is in."""
        here = None if self.step is None else self.innermost(self.step.thread, instant)
        return OTHER if here is None else self.places[here].phase

    def is_of_script(self, instant: float) -> bool:
        """Whether it lies in the step and numdrift records nothing then."""
        step = self.step
        within = step is not None and step.start <= instant < step.end
        return within and not any(began <= instant < ended for began, ended in self.own)

    def op_of(self, one: Slice) -> str | None:
        """The name under which a slice is counted as an op; None for a range: of a phase, a module or a block."""
        name = one.name
        if name.startswith((PHASE, MODULE, STEP)) or name == CUT or self.is_block(one):
            return None
        if one.category == "cpu_op" or self.places[one].kind == "compile" or name.startswith(GENERATED):
            # Inductor's call of a graph has the graph's hash in its name, as long as a line and another in each run.
            return COMPILED_GRAPH if COMPILED_GRAPH in name else name
        return None

    def is_block(self, one: Slice) -> bool:
        return one.name in self._blocks and one.category == "user_annotation"

    def _read_step(self, step: Slice) -> None:
        # A call without gradients, and what follows it, changes no phase where a forward with gradients comes, and is
        # the forward itself of a step that has no other.
        names = [one.name.removeprefix(PHASE) for one in walk([step]) if one.name.startswith(PHASE)]
        if UNTRAINED in names and FORWARD in names:
            before = [name for name in names[: names.index(UNTRAINED)] if name != OWN]
            self._untrained = before[-1] if before else OTHER
        for one in walk([step]):
            around = SlicePlace() if one is step or one.within is None else self.places[one.within]
            self.places[one] = self._place(one, around)
            self._count(one, self.places[one])
        for one in walk([step]):
            if self.is_block(one) and self.places[one].kind != "compile":
                # What the recording does within a block is no time of the block.
                own = sum(inner.self_time for inner in walk([one]) if self.places[inner].phase == OWN)
                self.times.blocks.setdefault(one.name, Spent(self._blocks[one.name])).add(one.time - own, 0)
        # What lies before the first phase (a loop's own Python) is counted to that phase.
        stretches = list(self._stretches(step))
        first = next((phase for phase, _, _ in stretches if phase != OTHER), OTHER)
        for phase, began, ended in stretches:
            self.times.phases.setdefault(first if phase == OTHER else phase, Spent()).add(ended - began, 0)
            if phase == OWN:
                self.own.append((began, ended))
        self.times.own = self.times.phases.pop(OWN, Spent()).time
        self.times.walls.append(step.time - self.times.own)

    def _stretches(self, step: Slice) -> Iterator[tuple[str, float, float]]:
        """The phases of the step in their order, each with its beginning and its end.

        In a moment in no phase the tracing closes one and opens another: it is of the one before.
        """
        now, last, open_ = step.start, "", [step]
        for one in [*walk(step.children), None]:
            until = step.end if one is None else one.start
            while open_:
                end = min(until, open_[-1].end)
                phase = self.places[open_[-1]].phase
                last = phase if phase != OTHER else last
                yield last or OTHER, now, end
                now = end
                if open_[-1].end > until or (one is not None and one.within is open_[-1]):
                    break
                open_.pop()
            if one is not None:
                open_.append(one)

    def _place(self, one: Slice, around: SlicePlace) -> SlicePlace:
        name = one.name
        if name == PHASE + UNTRAINED:
            return replace(around, phase=self._untrained)
        if name.startswith(PHASE):
            return replace(around, phase=name.removeprefix(PHASE))
        if name.startswith(MODULE):
            return replace(around, module=name.removeprefix(MODULE))
        if self.is_block(one):
            return replace(around, phase=name) if name in STANDARD_PHASES else around
        if name == CUT:
            return replace(around, phase=CUT)
        if name.endswith(COMPILING):
            return replace(around, phase=COMPILE, kind="compile")
        if not name and one.category == "cpu_op":
            return replace(around, phase=EXECUTION, kind="execution")  # the lazy core's executor has no name
        place = replace(around, line=str(one.arguments.get(LINE) or "") or around.line)
        number = one.arguments.get("Sequence number")
        if number is not None and one.arguments.get("Fwd thread id"):
            # A backward, of the module whose forward has this number.
            forward = self._forward.get(number)
            return replace(place, module=forward.module, line=forward.line) if forward else place
        if number is not None:
            self._forward[number] = place
        return place

    def _count(self, one: Slice, place: SlicePlace) -> None:
        name = one.name
        if place.phase == OWN:
            return
        if place.kind == "execution" and not name:
            # One lazy graph is executed: by a mark_step, else by the outermost op that needed a value.
            cause, line = CUT, ""
            for around in one.ancestors():
                if around.name == CUT:
                    cause, line = CUT, ""
                    break
                if "::" in around.name and not around.name.startswith("autograd::"):
                    cause, line = around.name, self.places[around].line
            self.times.executions.setdefault((cause, line), Spent()).add(one.time)
            return
        op = self.op_of(one)
        if op is not None:
            kind = place.kind or ("kernel" if name.startswith(GENERATED) else self._plain)
            key = OpKey(op, kind, place.phase, place.module, place.line)
            self.times.ops.setdefault(key, Spent()).add(one.self_time)
