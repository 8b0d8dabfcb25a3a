"""Records every call of chosen steps with digests of its inputs and outputs, and every random draw with its line.

If a mode does not repeat its own bits, these records are used to compare two of its training runs.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import NotAvailable
from ...hooks.observer import Observer, RecordingSurroundings
from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.modes.mode_spec import OP_BY_OP
from ...records.values.call_record import CALLS, GRAPH, CallRecord
from ...tape.op_places import StepPlaces
from ...tape.origin import OwnFiles
from ...tape.recording.compiled_graphs import CapturedGraph, CompiledGraph, CompiledGraphs
from ...tape.recording.followed_calls import FollowedOps, OpCall
from ...torch_private.dispatching import without_dispatch_modes, without_function_modes
from ...torch_private.patches import Patches
from ...torch_private.profiling.compile_work import around_compile_calls
from .executed_lines import ExecutedLines
from .noted_calls import NotedCalls, numbers_in

Executed = Callable[[], Any]


class CallRecording(Observer):
    """Records the calls of the chosen steps in the run's `calls`, including calls of threads that the script starts.

    Calls before the first step belong to step 0. A compiled graph is recorded as one call. If nothing compiles, the
    lines of the user's own files are followed. A line that changes a generator without calling an op is then recorded
    too: it draws from Python's or NumPy's generator, or seeds one. The training stays the same bit for bit.
    """

    doing = "recording the calls"

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode = around.config, around.mode
        self._steps = config.calls
        self._notice = around.notice
        self._guard = around.guard(self)
        self._notes = NotedCalls(Path(config.journal) / CALLS, mode.device, around.digester)
        self._files = OwnFiles(config.script)
        self._has_values = mode.device.partition(":")[0] not in DEFERRED_DEVICES
        self._compiles = mode.capabilities.compiles
        self._op_by_op = mode.backend in OP_BY_OP
        self._lines = ExecutedLines(self._files, self._moved, self._guard)
        self._patches = Patches("the calls")
        self._graphs: CompiledGraphs | None = None
        self._places: StepPlaces | None = None
        self._mode: FollowedOps | None = None
        self._threads: weakref.WeakKeyDictionary[threading.Thread, int] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._recording = self._in_graph = False

    # Which steps are recorded, from the script's first line to its last.

    def install(self) -> None:
        self._patches.wrap(threading.Thread, "start", self._numbered)
        self._patches.wrap(threading.Thread, "run", self._followed)
        if self._compiles:
            self._graphs = CompiledGraphs(op_by_op=self._op_by_op)
            try:
                self._graphs.install()
            except NotAvailable as error:
                self._graphs = None
                self._notice(f"the recorded calls do not show compiled graphs: {error}")
        else:
            self._patches.also(around_compile_calls("the calls", self._script_compiles))
        self._enter(0)

    def begins(self, step: int) -> None:
        self._leave()
        self._notes.phase = "data"
        if self._steps is not None and step in self._steps:
            if self._has_values:
                self._places = StepPlaces(modules=not self._compiles)
            self._enter(step)

    def step_ended(self, step: int) -> None:
        self._leave()

    def script_ended(self, failure: str) -> None:
        self._leave()

    def close(self) -> None:
        self._leave()
        if self._graphs is not None:
            self._graphs.remove()
        self._patches.undo()
        self._notes.close()

    def forget(self) -> None:
        self._recording = False
        self._notes.forget()
        self._lines.active = False

    def _enter(self, step: int) -> None:
        self._notes.step, self._recording = step, True
        self._notes.begin()
        if self._has_values:
            self._mode = self._followed_ops(0)
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            if self._graphs is not None:
                self._graphs.executor = self
        if not self._compiles:  # dynamo would trace the function that follows the lines
            self._lines.start()

    def _leave(self) -> None:
        if not self._recording:
            return
        self._lines.stop()
        self._moved("")
        self._recording = False
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)
        if self._graphs is not None:
            self._graphs.executor = None
        places, self._places = self._places, None
        if places is not None:
            places.close()
        self._notes.memories.forget_freed()
        self._notes.flush()

    def _script_compiles(self, compile_: Executed) -> Any:
        if not self._compiles:
            self._compiles = True
            self._lines.stop()
            if self._places is not None:
                self._places.close()
        return compile_()

    # The script's own threads: each has its own dispatch modes. They are numbered as they start.

    def _numbered(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(thread: threading.Thread, *args: Any, **kwargs: Any) -> Any:
            if self._recording and self._is_here():
                self._threads[thread] = next(self._numbers)
            return original(thread, *args, **kwargs)

        return start

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(thread: threading.Thread, *args: Any, **kwargs: Any) -> Any:
            number = self._threads.get(thread)
            if number is None or not self._has_values or not self._is_here():
                return original(thread, *args, **kwargs)
            with self._followed_ops(number):
                return original(thread, *args, **kwargs)

        return run

    def _is_here(self) -> bool:
        # A process forked from the training, such as a data loader's worker, inherits these hooks.
        return os.getpid() == self._process

    # Recording one call, or one line.

    def _followed_ops(self, thread: int) -> FollowedOps:
        return FollowedOps(functools.partial(self._before, thread), self._after)

    def _before(self, thread: int, call: OpCall) -> Callable[[Any], None] | None:
        """Record the arguments of a call. Return the function that records its results."""
        if not (call.is_overload and self._recording and self._is_here()) or (self._in_graph and not call.is_random):
            return None
        with self._guard, self._lock, torch.no_grad():
            line, module = self._files.line(sys._getframe(1)), None
            if thread == 0:
                self._notes.moved(line if self._lines.active else "")
                module = self._module_of(call)
            return self._notes.before(call, line=line, module=module, thread=thread)
        return None  # the guard has suppressed a failure

    def _after(self, write: Callable[[Any], None], outputs: Any) -> None:
        with self._guard, self._lock, torch.no_grad():
            write(outputs)

    def _module_of(self, call: OpCall) -> str | None:
        """Return the module whose op is about to run, and record the phase."""
        if self._places is None or self._in_graph:
            return None
        with without_dispatch_modes(), without_function_modes():
            place = self._places.here(grad=call.grad, differentiable=call.is_differentiable)
        self._notes.phase = place.phase
        return place.module

    def _moved(self, line: str) -> None:
        if self._recording and self._is_here():
            with self._lock:
                self._notes.moved(line)

    # Recording a compiled graph from outside.

    def captured(self, graph: CapturedGraph, inputs: Sequence[Any], execute: Executed) -> Any:
        return execute()

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Executed) -> Any:
        """Execute a compiled graph unchanged, and record it as one call."""
        if not self._recording or self._in_graph or not self._is_here():
            return execute()
        line, input_digests, numbers = "", list[tuple[int, str]](), numbers_in(inputs)
        with self._guard, self._lock, torch.no_grad():
            line, input_digests = self._files.line(sys._getframe(1)), self._notes.shown(list(inputs))
            self._notes.moved("")
            self._notes.phase = graph.phase
        self._in_graph = True
        try:
            outputs = execute()
        finally:
            self._in_graph = False
        with self._guard, self._lock, torch.no_grad():
            op, shown = GRAPH + graph.name, self._notes.shown(outputs)
            call = CallRecord(
                self._notes.step, op, line, graph.phase, tensors=input_digests, numbers=numbers, results=shown
            )
            self._notes.write(call)
        return outputs
