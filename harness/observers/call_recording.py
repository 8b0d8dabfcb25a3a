"""Every call of chosen steps with digests of what it was given and gave, and every draw of random numbers with its
line: by these two trainings of one mode are held against each other where it does not repeat."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import NotAvailable
from ..hooks.mode_protocol import compiles
from ..hooks.observer import Observer, RecordingSurroundings
from ..records.call_record import CALLS, GRAPH, OWN, SETUP_PHASE, TORCH, CallRecord
from ..records.digest_record import RECORD_BYTES
from ..records.mode_spec import OP_BY_OP
from ..tape.call_log import PLAIN
from ..tape.compiled_graphs import CapturedGraph, CompiledGraph, CompiledGraphs
from ..tape.journal_writing import AppendFile
from ..tape.op_places import StepPlaces
from ..tape.origin import OwnFiles
from ..tape.random_calls import is_random
from ..tape.tape import leaves
from ..torch_private.compile_work import around_compile_calls
from ..torch_private.dispatching import (
    InterceptedOps,
    StorageMark,
    is_operation_overload,
    storage_address,
    without_dispatch_modes,
    without_function_modes,
)
from ..torch_private.operators import returns_view, written_values
from ..torch_private.patches import Patches
from .digest import Digester, hash_text
from .executed_lines import ExecutedLines
from .operations import FLUSH_AT, WITHOUT_VALUES
from .script_generators import GeneratorDigests

MOST_TEXT = 200
"""Characters that are kept of a call's numbers."""

Executed = Callable[[], Any]


class Memories:
    """Numbers the memory of tensors in the order in which it is first met."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageMark, int]] = {}
        self._count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's memory, -1 where it has none."""
        try:
            address = storage_address(tensor)
        except (RuntimeError, NotImplementedError, AttributeError):
            return -1
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = StorageMark(tensor), self._count
            self._count += 1
        return known[1]

    def forget_freed(self) -> None:
        """A freed storage keeps its address for as long as its mark is held."""
        self._known = {key: one for key, one in self._known.items() if one[0].storage() is not None}


class CallRecording(Observer):
    """Records the calls of the steps in the run's `calls`, also those of threads that the script starts; what comes
    before the first step belongs to step 0. Of a compiled graph all is one call.

    Where nothing compiles, the lines of the user's own files are followed, and the line that moves a generator without
    calling an op (Python's and NumPy's, a seed) is written down, too. The training keeps every bit.
    """

    doing = "recording the calls"

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode = around.config, around.mode
        self._steps = config.calls
        self._notice = around.notice
        self._guard = around.guard(self)
        self._digester: Digester = around.digester
        self._file = AppendFile(Path(config.journal) / CALLS)
        self._files = OwnFiles(config.script)
        self._generators = GeneratorDigests(mode.device, around.digester)
        self._states: dict[str, str] = {}
        self._device = mode.device.partition(":")[0]
        self._has_values = self._device not in WITHOUT_VALUES
        self._compiles = compiles(mode)
        self._op_by_op = getattr(mode, "backend", None) in OP_BY_OP
        self._lines = ExecutedLines(self._files, self._moved, self._guard)
        self._patches = Patches("the calls")
        self._graphs: CompiledGraphs | None = None
        self._memories = Memories()
        self._places: StepPlaces | None = None
        self._mode: InterceptedOps | None = None
        self._threads: weakref.WeakKeyDictionary[threading.Thread, int] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._step, self._phase = 0, SETUP_PHASE
        self._recording = self._in_graph = False
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    # From the first line of the script to its last: which steps are recorded.

    def install(self) -> None:
        self._patches.wrap(threading.Thread, "start", self._numbered)
        self._patches.wrap(threading.Thread, "run", self._followed)
        if self._compiles:
            self._graphs = CompiledGraphs(op_by_op=self._op_by_op)
            try:
                self._graphs.install()
            except NotAvailable as error:
                self._graphs = None
                self._notice(f"compiled graphs are not seen among the calls: {error}")
        else:
            # Dynamo would trace the hooks of modules, and must not be watched by a debugger.
            self._patches.also(around_compile_calls("the calls", self._script_compiles))
        self._enter(0)

    def begins(self, step: int) -> None:
        self._leave()
        self._phase = "data"
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
        self._file.close()

    def forget(self) -> None:
        self._recording = False
        self._pending.clear()
        self._lines.active = False

    def _enter(self, step: int) -> None:
        self._step, self._recording = step, True
        self._states = self._generators.read()
        if self._has_values:
            self._mode = InterceptedOps(lambda *call: self._around(0, *call))
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            if self._graphs is not None:
                self._graphs.executor = self
        if not self._compiles:
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
        self._forget_modules()
        self._memories.forget_freed()
        self._flush()

    def _forget_modules(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.close()

    def _script_compiles(self, compile_: Executed) -> Any:
        if not self._compiles:
            self._compiles = True
            self._lines.stop()
            if self._places is not None:
                self._places.close()
        return compile_()

    # Threads of the script's own: each has its dispatch modes, and a number by the order in which it was started.

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
            with InterceptedOps(lambda *call: self._around(number, *call)):
                return original(thread, *args, **kwargs)

        return run

    def _is_here(self) -> bool:
        # A process forked from the training (a data loader's worker) inherits all of this.
        return os.getpid() == self._process

    # One call.

    def _around(self, thread: int, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an op executed as it would be, noted before for what it takes and after for what it gave."""
        random = is_random(operation)
        seen = is_operation_overload(operation) and operation.namespace not in ("profiler", "prim")
        if not (seen and self._recording and self._is_here()) or (self._in_graph and not random):
            return operation(*args, **kwargs)
        finish: Callable[[Any], None] | None = None
        grad = torch.is_grad_enabled()
        with self._guard, self._lock, torch.no_grad():
            finish = self._noted(thread, operation, args, kwargs, grad=grad, random=random)
        outputs = operation(*args, **kwargs)
        if finish is not None:
            with self._guard, self._lock, torch.no_grad():
                finish(outputs)
        return outputs

    def _noted(
        self, thread: int, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, grad: bool, random: bool
    ) -> Callable[[Any], None]:
        """Look at a call before it runs; what is given back writes it down when it has."""
        line = self._files.line(sys._getframe(1))
        module: str | None = None
        taken = [*leaves([*args, *kwargs.values()])]
        tensors = [one for one in taken if isinstance(one, torch.Tensor)]
        if thread == 0:
            self._moved(line if self._lines.active else "")
            if self._places is not None and not self._in_graph:
                with without_dispatch_modes(), without_function_modes():
                    differentiable = any(one.requires_grad for one in tensors)
                    place = self._places.here(grad=grad, differentiable=differentiable)
                self._phase, module = place.phase, place.module
        phase = self._phase
        before = self._drawn_from(taken) if random else {}
        memories = [self._memories.number(one) for one in tensors]
        given = [*zip(memories, self._digests(tensors), strict=True)]
        writes = [one for one in leaves(list(written_values(operation, args, kwargs))) if isinstance(one, torch.Tensor)]
        written = [place for place, one in enumerate(tensors) if any(one is other for other in writes)]
        numbers = ", ".join(_text(one) for one in taken if not isinstance(one, torch.Tensor))[:MOST_TEXT]

        def finish(outputs: Any) -> None:
            made = [one for one in leaves(outputs) if isinstance(one, torch.Tensor)]
            fresh = [one for one in made if not any(one is other for other in writes)]
            numbered = [self._memories.number(one) for one in fresh]
            views = returns_view(operation)
            shown = [one for one, memory in zip(fresh, numbered, strict=True) if not (views and memory in memories)]
            known = dict(zip(map(id, shown), self._digests(shown), strict=True))
            results = [(memory, known.get(id(one), "")) for one, memory in zip(fresh, numbered, strict=True)]
            changed = self._digests([tensors[place] for place in written])
            results += zip((memories[place] for place in written), changed, strict=True)
            if not made and outputs is not None:  # a number that is read, as by `.item()`
                results.append((-1, _text(outputs)))
            after = self._drawn_from(taken) if random else {}
            drew = [(name, state, after[name]) for name, state in before.items() if after[name] != state]
            self._states |= {name: after for name, _, after in drew if name in self._states}
            self._write(
                CallRecord(
                    self._step, str(operation), line, phase, module, thread, given, written, numbers, results, drew
                )
            )

        return finish

    def _drawn_from(self, taken: Sequence[Any]) -> dict[str, str]:
        """The states of the generators that a call may draw from."""
        generators = [one for one in taken if isinstance(one, torch.Generator)]
        with without_dispatch_modes(), without_function_modes():
            if generators:
                return {
                    OWN if place == 0 else f"{OWN} {place}": hash_text(self._digester.digest([one.get_state()]))
                    for place, one in enumerate(generators)
                }
        found = self._generators.read()
        return {name: found[name] for name in (TORCH, self._device) if name in found}

    def _moved(self, line: str) -> None:
        """Write down the generators that have moved since anybody looked, by no op: `line` has moved them."""
        if not self._recording or not self._is_here():
            return
        with self._lock:
            now = self._generators.read()
            moved = [
                (name, self._states[name], now[name]) for name in now if self._states.get(name, now[name]) != now[name]
            ]
            self._states = now
            if moved:
                self._write(CallRecord(self._step, "", line, self._phase, drew=moved))

    def _shown(self, values: Any) -> list[tuple[int, str]]:
        """The memory and the digest of each tensor among them."""
        tensors = [one for one in leaves(values) if isinstance(one, torch.Tensor)]
        return [(self._memories.number(one), found) for one, found in zip(tensors, self._digests(tensors), strict=True)]

    def _digests(self, tensors: Sequence[torch.Tensor]) -> list[str]:
        if not tensors:
            return []
        records = self._digester.digest(tensors)
        hashes = [hash_text(records[start : start + RECORD_BYTES]) for start in range(0, len(records), RECORD_BYTES)]
        return ["" if int(one, 16) == 0 else one for one in hashes]

    # A compiled graph, from outside.

    def captured(self, graph: CapturedGraph, inputs: Sequence[Any], execute: Executed) -> Any:
        return execute()

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Executed) -> Any:
        """Have a compiled graph executed as it would be, as one call."""
        if not self._recording or self._in_graph or not self._is_here():
            return execute()
        line, given = "", list[tuple[int, str]]()
        with self._guard, self._lock, torch.no_grad():
            line = self._files.line(sys._getframe(1))
            self._moved("")
            self._phase = graph.phase
            given = self._shown(inputs)
        numbers = ", ".join(_text(one) for one in inputs if not isinstance(one, torch.Tensor))[:MOST_TEXT]
        self._in_graph = True
        try:
            outputs = execute()
        finally:
            self._in_graph = False
        with self._guard, self._lock, torch.no_grad():
            op, phase = GRAPH + graph.name, graph.phase
            shown = self._shown(outputs)
            self._write(CallRecord(self._step, op, line, phase, given=given, numbers=numbers, results=shown))
        return outputs

    def _write(self, call: CallRecord) -> None:
        line = call.to_line()
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes >= FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        lines, self._pending, self._pending_bytes = self._pending, [], 0
        if lines and self._is_here():
            self._file.append(lines)


def _text(value: Any) -> str:
    """A number or a setting as it is; of anything else, whose text may hold an address, its type."""
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__
