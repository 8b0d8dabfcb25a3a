"""A step of lazy tensors as the core has executed it: the ops of its graphs, in their order, and those that fell back.

A lazy tensor has no value when its op is called: the core notes a node, and executes a graph of such nodes when
something needs a value. That may not be what the ops say one by one: views are copies in another layout, what was not
kept is executed again, with other random numbers, and what was written may be lost. So each graph that is executed is
taken down, executed once more op by op on copies of what it was given, and noted on the tape. Every value that the
core's own execution gave must have the same bits, or there is no tape.

    h = drop(x @ w)          graph 1, executed for the number: t_copy, mm, native_dropout, sum
    print(float(h.sum()))    graph 2, executed by the mark_step:  t_copy, mm, native_dropout, ... once more
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in
from numdrift.kernels.swaps.sites import ModulePaths

from ...records.call_record import CallRecord
from ...records.unfilled_read import UnfilledRead
from ...tape.call_log import CallLog, NotedCall
from ...tape.op_places import OpPlace, owned_by_one, owners_of
from ...tape.origin import StepFrames, line_of, script_frames
from ...tape.replay import generator_state, set_generator_state
from ...tape.step_settings import current_settings, setting_lines
from ...tape.tape import NotReplayable, Phase, Tape, View, Watched, leaves, mapped
from ...tape.tape_recorder import is_off_tape
from ...torch_private import dispatching
from ...torch_private.dispatching import (
    InterceptedOps,
    Overrides,
    registered_operation,
    without_dispatch_modes,
    without_function_modes,
)
from ...torch_private.lazy import (
    LAZY_KEY,
    lazy_counters,
    lazy_has_value,
    lazy_tensor_id,
    pending_data,
    set_lazy_source_locations,
)
from ...torch_private.lazy_syncs import EXECUTIONS, around_lazy_syncs
from ...torch_private.lazy_work import functional_tensors
from ...torch_private.operators import DeviceKernel, device_kernels
from ..call_places import CallPlaces
from ..called_operators import is_called_by_harness
from ..dispatched_support import as_tensor
from ..followed_calls import named_frame
from ..held_back_step import HeldBackStep, apart
from .lazy_following import COPIES
from .pending_graph import KernelCalled, PendingGraph
from .taped_values import TapedValues
from .torchscript_tape import executed_graph
from .unfilled_memory import UnfilledMemory

TORCH = Path(torch.__file__).parent
OBSERVING = (
    *(__file__, dispatching.__file__),
    *(str(TORCH / name) for name in ("_ops.py", "_compile.py", "_dynamo/eval_frame.py")),
)
"""Files whose frames stand between the call of an op and who calls it, where every op is seen."""


class LazyStepRecorder(HeldBackStep):
    """Records from `start` to `stop`, as `tape.tape_recorder` does where ops have values. Whatever cannot be taken ends
    the tape, with the `reason`, and not the training."""

    def __init__(self, step: int, script: str) -> None:
        super().__init__()
        self._step = step
        self._script = script
        self._log = CallLog()
        self._calls: list[KernelCalled] = []
        self._within: list[KernelCalled] = []
        self._made: dict[int, weakref.ref[torch.Tensor]] = {}
        self._values = TapedValues(self._log)
        self._unfilled = UnfilledMemory()
        self._watched: list[tuple[str, torch.Tensor]] = []
        self._seen: list[Watched] = []
        self._given: list[Watched] = []
        self._settings: Mapping[str, Any] = {}
        self._set_at: Mapping[str, str] = {}
        self._starts: list[Watched] = []
        self._phase: Phase = "data"
        self._iteration = 0
        self._first: dict[Hashable, int] = {}
        self._frames = StepFrames(script)
        self._executing = False
        self._executions = 0
        self._generator = torch.empty(0)

    def start(self) -> None:
        self._settings, self._set_at = current_settings(), dict(setting_lines.known)
        modules = ModulePaths()
        self._places = CallPlaces(self._script, modules)
        had_locations = set_lazy_source_locations(True)
        overrides = Overrides()
        self._undo = [modules.close, lambda: set_lazy_source_locations(had_locations), overrides.close]
        for kernel in list(device_kernels(LAZY_KEY)):
            overrides.replace(kernel.operation, LAZY_KEY, self._shown(kernel))
        self._undo.append(around_lazy_syncs(self._synced))
        mode = InterceptedOps(self._around)
        mode.__enter__()  # type: ignore[no-untyped-call]
        self._undo.append(lambda: mode.__exit__(None, None, None))
        self._executions = _executions()
        self._open = True

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """Take note of what the step starts from, by names."""

        def look() -> None:
            for name, tensor in values.items():
                if tensor.device.type == "lazy" and lazy_has_value(tensor):
                    view, real = self._executed_value(tensor)
                    self._starts.append(Watched(0, name, view, real))  # of which the view is used alone

        self._look(look)

    def over(self) -> None:
        """The step has ended; what it has left pending is still to be executed."""
        self._is_over = True

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note a value that the step is compared by, as it is now: a copy of it is one more value of the graph."""
        if self.reason is not None:
            return
        if tensor.device.type == "lazy":
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                self._watched.append((name, tensor.clone()))  # noted, as every kernel of the core
        else:
            self._look(lambda: self._seen.append(self._as_it_is(name, tensor)))

    def _as_it_is(self, name: str, tensor: torch.Tensor) -> Watched:
        view = self._log.table.view(tensor.detach(), is_input=True)
        return Watched(len(self._log.calls), name, view, tensor.detach().clone())

    def _as_executed(self, name: str, tensor: torch.Tensor) -> Watched:
        """A lazy tensor that has a value, as it is now."""
        view, real = self._executed_value(tensor)
        return Watched(len(self._log.calls), name, view, real.clone())

    def _executed_value(self, tensor: torch.Tensor) -> tuple[View, torch.Tensor]:
        real = self._values.real(tensor)
        return self._log.table.view(self._values.standing_for(real), is_input=True), real

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note what the first root module is about to be called with, of what has a value by then."""

        def look() -> None:
            for name, tensor in tensors.items():
                if tensor.device.type != "lazy":
                    self._given.append(self._as_it_is(name, tensor))
                elif lazy_has_value(tensor):
                    self._given.append(self._as_executed(name, tensor))

        self._look(look)

    def given(self, tensor: torch.Tensor) -> None:
        """A tensor holds other values than the script has given it: it is an input of the graph, as it was before."""

    def give_up(self, reason: str) -> None:
        """End the tape; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._watched, self._log = [], CallLog()
            self._values = TapedValues(self._log)

    @property
    def unfilled(self) -> list[UnfilledRead]:
        """The calls that have made memory without values on which a result of the step depends."""
        found = []
        for one in self._unfilled.read:
            outer = one.outermost
            op, line = outer.kernel.name.replace("::", "."), line_of(outer.frames[0]) if outer.frames else ""
            call = CallRecord(self._step, op, line, outer.place.phase, outer.place.module)
            found.append(UnfilledRead(call, made_by=one.kernel.name.replace("::", ".")))
        return found

    def tape(self) -> Tape:
        """What was recorded, once what is watched has been executed. Raises NotReplayable with the reason where that is
        not the whole step."""
        unseen = _executions() - self._executions
        if unseen:
            self.give_up(f"the lazy core has executed {unseen} graphs that nobody has ordered")
        if self.reason is not None:
            raise NotReplayable(self.reason)
        watched = list(self._seen)
        with apart():
            for name, tensor in self._watched:
                if not lazy_has_value(tensor):
                    raise NotReplayable(f"{name} was not executed when the step had ended")
                watched.append(self._as_executed(name, tensor))
        calls = self._log.calls
        owners = owned_by_one(calls, owners_of(calls, [*watched, *self._starts]))
        named = [replace(call, owners=found) if found else call for call, found in zip(calls, owners, strict=True)]
        table = self._log.table
        starts = {one.name: one.view for one in self._starts}
        seen, given, found = tuple(watched), tuple(self._given), tuple(named)
        return Tape(self._step, table.slots, table.inputs, found, seen, self._settings, starts, given, self._set_at)

    # The calls of the core's kernels.

    def _shown(self, kernel: DeviceKernel) -> Callable[..., Any]:
        copies = kernel.name.partition("::")[2].partition(".")[0] in COPIES

        def called(*args: Any, **kwargs: Any) -> Any:
            given = [as_tensor(one) if is_tensor else one for one, is_tensor in zip(args, kernel.tensors, strict=False)]
            reads = not self._within and is_called_by_harness(OBSERVING)
            call = self._look(lambda: self._begins(kernel, args, reads=reads))
            if call is None:
                return kernel.call(*given, **kwargs)
            reading = copies and _goes_to_the_cpu(given, kwargs)
            execution = self._look(lambda: self._about_to_execute(given[:1])) if reading else None
            self._within.append(call)
            try:
                outputs = named_frame(str(call.number))(kernel.call, given, kwargs)
            finally:
                self._within.pop()
            if execution is not None:
                self._look(lambda: self._executed(execution, alone=outputs))
            elif reading:  # of a value that came from the CPU a graph without ops may be executed
                self._executions = _executions()
            self._look(lambda: self._ended(call, given, kwargs, outputs))
            return outputs

        return called

    def _begins(self, kernel: DeviceKernel, args: Sequence[Any], *, reads: bool) -> KernelCalled:
        values = [one if isinstance(one, (bool, int, float)) else None for one in args]
        parent = self._within[-1] if self._within else None
        place, frames = self._here(kernel.operation)
        call = KernelCalled(len(self._calls), kernel, values, place, frames, self._iteration, parent, reads)
        self._calls.append(call)
        self._generator = generator_state("cpu")
        return call

    def _here(self, operation: Any) -> tuple[OpPlace, tuple[str, ...]]:
        """Where the op is that is about to be called, and the user's frames."""
        node = self._places.here(operation, {})
        if node.phase == "backward":
            self._phase = "optimizer"  # is what comes after it, until a module is called or something is differentiated
            return OpPlace("backward", node.module, node.sequence), self._frames.here("backward", node.sequence)
        if node.module is not None or node.sequence is not None:
            self._iteration += self._phase == "optimizer"
            self._phase = "forward"
        return OpPlace(self._phase, node.module, node.sequence), self._frames.here(self._phase, node.sequence)

    def _ended(self, call: KernelCalled, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> None:
        made = [one for one in tensors_in(outputs) if one.device.type == "lazy"]
        for one in made:
            self._made[lazy_tensor_id(one)] = weakref.ref(one)
        if self._is_over:
            return
        if self._unfilled.is_made_by(call):
            for _, real in pending_data(made):
                self._unfilled.made(call, real)
        if call.kernel.is_fallback:
            self._fell_back(call, args, kwargs, outputs)
        elif call.kernel.name == "aten::_to_copy" and not call.reads and call.parent is None:
            # What goes to the core may be what an op on the tape has made, and what comes from it one may take.
            source = args[0]
            if source.device.type == "cpu" and self._log.table.slot_of(source) is not None and made:
                self._copied(call, source, self._values.real(made[0]))
            elif source.device.type == "lazy" and not made:
                self._copied(call, self._values.of(source), outputs)

    def _copied(self, call: KernelCalled, source: torch.Tensor, real: torch.Tensor) -> None:
        """Take down a copy between the CPU and the core: `real` is what it gave."""
        copying: Any = registered_operation("aten._to_copy.default")
        options = {"dtype": real.dtype}
        with apart():
            taken = self._log.take(copying, (source,), options, call.place, grad=False)
            copy = copying(source, **options)
            self._log.complete(copying, (source,), options, taken, copy, call.frames)
            self._number(call.iteration, call.number)
        self._values.adopt(copy, real, call.kernel.name)
        if real.device.type == "cpu":
            self._log.table.assign(real, self._log.table.view(copy, is_input=False).slot)

    def _fell_back(self, call: KernelCalled, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> None:
        """The core has no kernel for an op: it was executed on the CPU, on the values that its arguments have."""

        def ours(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self._values.of(value) if value.device.type == "lazy" else value
            return torch.device("cpu") if isinstance(value, torch.device) else value

        arguments, keywords = mapped(ours, tuple(args)), {name: mapped(ours, one) for name, one in kwargs.items()}
        operation, after = call.kernel.operation, generator_state("cpu")
        set_generator_state("cpu", self._generator)
        try:
            with apart():
                taken = self._log.take(operation, arguments, keywords, call.place, grad=False)
                results = operation(*arguments, **keywords)
                self._log.complete(operation, arguments, keywords, taken, results, call.frames)
                self._number(call.iteration, call.number)
        finally:
            set_generator_state("cpu", after)
        for mine, theirs in zip(tensors_in(results), tensors_in(outputs), strict=True):
            self._values.adopt(
                mine, self._values.real(theirs) if theirs.device.type == "lazy" else theirs, call.kernel.name
            )

    def _number(self, iteration: int, order: int) -> None:
        """Say of the call that was noted last in which pass it was, and when."""
        self._log.calls[-1] = replace(self._log.calls[-1], iteration=iteration, order=order)

    # The executions of graphs.

    def _synced(self, wanted: Sequence[torch.Tensor] | None, execute: Callable[[], None]) -> None:
        execution = self._look(lambda: self._about_to_execute(wanted))
        self._executing, before = True, self._executing
        try:
            execute()
        finally:
            self._executing = before
        if execution is not None:
            self._look(lambda: self._executed(execution))

    def _about_to_execute(self, wanted: Sequence[torch.Tensor] | None) -> PendingGraph | None:
        """What is about to be executed for these tensors, for all that live and are pending where they are None."""
        if wanted is None:
            alive = {number: one for number, made in self._made.items() if (one := made()) is not None}
            wanted = [alive[number] for number in sorted(alive)]  # the core's own order
        tensors = functional_tensors([one for one in wanted if one.device.type == "lazy"])
        roots = [one for one in tensors if not self._values.has_value(one)]
        if not roots:
            return None
        pending = PendingGraph.of(roots)
        for value in pending.given:  # before the execution, which may write into it
            self._values.standing_for(value)
        return pending

    def _executed(self, execution: PendingGraph, alone: torch.Tensor | None = None) -> None:
        """Take down what was executed, op by op; what that gives must be what the core's execution has given. `alone`
        is what was executed for a copy to the CPU."""
        self._executions += 1
        inputs = [self._values.standing_for(value) for value in execution.given]
        graph = execution.executed()
        known = execution.known_nodes(graph, self._calls, self._first, self._executions)
        self._generator = generator_state("cpu")
        set_generator_state("cpu", execution.generator)
        try:
            with apart():
                results = executed_graph(self._log, graph, inputs, known)

                def once_more(others: list[torch.Tensor]) -> list[Any]:
                    set_generator_state("cpu", execution.generator)
                    return executed_graph(CallLog(), graph, others)

                self._unfilled.look(execution.given, inputs, once_more)
        finally:
            set_generator_state("cpu", self._generator)
        if alone is not None:
            self._values.adopt_alone(execution.roots[0], results[0], alone)
            return
        for root, result in zip(execution.roots, results, strict=True):
            self._values.adopt(result, self._values.real(root), "a graph")

    def _around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an op executed as it would be; on the tape is what takes and gives tensors of the CPU alone."""
        given = [one for one in leaves((*args, *kwargs.values())) if isinstance(one, (torch.Tensor, torch.device))]
        taken = None
        # What the core itself executes, in a graph or a kernel of its own, is taken down with that.
        own = not self._executing and not self._within and not self._is_over and not is_off_tape(operation)
        if own and all((one if isinstance(one, torch.device) else one.device).type == "cpu" for one in given):
            grad = torch.is_grad_enabled()

            def take() -> NotedCall:
                return self._log.take(operation, args, kwargs, self._here(operation)[0], grad=grad)

            taken = self._look(take)
        outputs = operation(*args, **kwargs)
        if taken is not None and all(one.device.type == "cpu" for one in tensors_in(outputs)):
            frames = script_frames(self._script)

            def complete() -> None:
                self._log.complete(operation, args, kwargs, taken, outputs, frames)
                self._number(self._iteration, len(self._calls))

            self._look(complete)
        return outputs


def _goes_to_the_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether these are the arguments of a copy of a lazy tensor to the CPU."""
    source, *rest = args
    target = kwargs.get("device") or (rest[0].device if rest and isinstance(rest[0], torch.Tensor) else source.device)
    return bool(source.device.type == "lazy") and torch.device(target).type == "cpu"


def _executions() -> int:
    """How many graphs the core has executed."""
    counters = lazy_counters()
    return sum(counters.get(name, 0) for name in EXECUTIONS)
