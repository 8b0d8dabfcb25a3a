"""A step of lazy tensors as the core executed it: the ops of its graphs in their order, and the ops that fell back.

A lazy tensor has no value when its op is called. The core adds a node to a graph, and executes the graph when a value
is needed. The execution may differ from executing the ops one by one: views are copies in another layout, values that
were not kept are computed again with other random numbers, and writes may be lost. The recorder therefore takes each
executed graph, executes it again op by op on copies of its inputs, and records these calls on the tape. Every value
must have the same bits as in the core's own execution; otherwise there is no tape.

    h = drop(x @ w)          graph 1, executed for the number: t_copy, mm, native_dropout, sum
    print(float(h.sum()))    graph 2, executed by the mark_step:  t_copy, mm, native_dropout, ... again
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

from ...records.values.call_record import CallRecord
from ...records.values.unfilled_read import UnfilledRead
from ...tape.op_places import OpPlace, owned_by_one, owners_of
from ...tape.origin import StepFrames, line_of, script_frames
from ...tape.recording.call_log import CallLog, NotedCall
from ...tape.recording.tape_recorder import is_off_tape
from ...tape.replaying.replay import generator_state, set_generator_state
from ...tape.step_settings import current_settings, setting_lines
from ...tape.tape import NotReplayable, Phase, Tape, View, Watched, leaves, mapped
from ...torch_private import dispatching, registered_kernels
from ...torch_private.deferred.lazy import (
    LAZY_KEY,
    lazy_counters,
    lazy_has_value,
    lazy_tensor_id,
    pending_data,
    set_lazy_source_locations,
)
from ...torch_private.deferred.lazy_syncs import EXECUTIONS, around_lazy_syncs
from ...torch_private.dispatching import (
    InterceptedOps,
    registered_operation,
    without_dispatch_modes,
    without_function_modes,
)
from ...torch_private.operators import DeviceKernel, device_kernels
from ...torch_private.profiling.lazy_work import functional_tensors
from ...torch_private.registered_kernels import Overrides
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
    *(__file__, dispatching.__file__, registered_kernels.__file__),
    *(str(TORCH / name) for name in ("_ops.py", "_compile.py", "_dynamo/eval_frame.py")),
)
"""Files whose frames are between an op and its caller while every op is observed."""


class LazyStepRecorder(HeldBackStep):
    """The recorder of a lazy step, from `start` to `stop`.

    It does the same as `tape.tape_recorder`, whose ops have values at once. An op that cannot be recorded abandons the
    tape (see `reason`); training continues.
    """

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
        self._settings, self._set_at = current_settings(), dict(setting_lines.lines)
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
        """Record the values that the step starts from, by their names."""

        def look() -> None:
            for name, tensor in values.items():
                if tensor.device.type == "lazy" and lazy_has_value(tensor):
                    view, real = self._executed_value(tensor)
                    self._starts.append(Watched(0, name, view, real))  # only its view is used

        self._look(look)

    def over(self) -> None:
        """Mark the step as ended. Its pending ops are still to be executed."""
        self._is_over = True

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Record the current content of a value by which the step is compared.

        The pending graph gets a copy of a lazy tensor as one more value.
        """
        if self.reason is not None:
            return
        if tensor.device.type == "lazy":
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                self._watched.append((name, tensor.clone()))  # recorded like every kernel call of the core
        else:
            self._look(lambda: self._seen.append(self._as_it_is(name, tensor)))

    def _as_it_is(self, name: str, tensor: torch.Tensor) -> Watched:
        view = self._log.table.view(tensor.detach(), is_input=True)
        return Watched(len(self._log.calls), name, view, tensor.detach().clone())

    def _as_executed(self, name: str, tensor: torch.Tensor) -> Watched:
        """Return the watched value of a lazy tensor that has been executed, with a copy of its current content."""
        view, real = self._executed_value(tensor)
        return Watched(len(self._log.calls), name, view, real.clone())

    def _executed_value(self, tensor: torch.Tensor) -> tuple[View, torch.Tensor]:
        real = self._values.real(tensor)
        return self._log.table.view(self._values.standing_for(real), is_input=True), real

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record the tensors that the first root module is about to be called with, if they already have values."""

        def look() -> None:
            for name, tensor in tensors.items():
                if tensor.device.type != "lazy":
                    self._given.append(self._as_it_is(name, tensor))
                elif lazy_has_value(tensor):
                    self._given.append(self._as_executed(name, tensor))

        self._look(look)

    def overwritten(self, tensor: torch.Tensor) -> None:
        """Do nothing: a tensor with values other than the script's remains an input of the graph."""

    def give_up(self, reason: str) -> None:
        """Abandon the tape, and keep the first reason."""
        if self.reason is None:
            self.reason = reason
            self._watched, self._log = [], CallLog()
            self._values = TapedValues(self._log)

    @property
    def unfilled(self) -> list[UnfilledRead]:
        """The calls that made memory without values on which a result of the step depends."""
        reads = []
        for maker in self._unfilled.read:
            outer = maker.outermost
            op, line = outer.kernel.name.replace("::", "."), line_of(outer.frames[0]) if outer.frames else ""
            call = CallRecord(self._step, op, line, outer.place.phase, outer.place.module)
            reads.append(UnfilledRead(call, made_by=maker.kernel.name.replace("::", ".")))
        return reads

    def tape(self) -> Tape:
        """Return the recorded step, once the watched values have been executed.

        Raise NotReplayable with the reason if the record is not the whole step.
        """
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
        named = [replace(call, owners=names) if names else call for call, names in zip(calls, owners, strict=True)]
        table = self._log.table
        starts = {start.name: start.view for start in self._starts}
        values, batch, step_calls = tuple(watched), tuple(self._given), tuple(named)
        return Tape(
            self._step, table.slots, table.inputs, step_calls, values, self._settings, starts, batch, self._set_at
        )

    # The calls of the core's kernels.

    def _shown(self, kernel: DeviceKernel) -> Callable[..., Any]:
        copies = kernel.name.partition("::")[2].partition(".")[0] in COPIES

        def called(*args: Any, **kwargs: Any) -> Any:
            inputs = [
                as_tensor(arg) if is_tensor else arg for arg, is_tensor in zip(args, kernel.tensors, strict=False)
            ]
            reads = not self._within and is_called_by_harness(OBSERVING)
            call = self._look(lambda: self._begins(kernel, args, reads=reads))
            if call is None:
                return kernel.call(*inputs, **kwargs)
            reading = copies and _goes_to_the_cpu(inputs, kwargs)
            execution = self._look(lambda: self._about_to_execute(inputs[:1])) if reading else None
            self._within.append(call)
            try:
                outputs = named_frame(str(call.number))(kernel.call, inputs, kwargs)
            finally:
                self._within.pop()
            if execution is not None:
                self._look(lambda: self._executed(execution, alone=outputs))
            elif reading:  # the core may have executed a graph without ops for a value that came from the CPU
                self._executions = _executions()
            self._look(lambda: self._ended(call, inputs, kwargs, outputs))
            return outputs

        return called

    def _begins(self, kernel: DeviceKernel, args: Sequence[Any], *, reads: bool) -> KernelCalled:
        values = [argument if isinstance(argument, (bool, int, float)) else None for argument in args]
        parent = self._within[-1] if self._within else None
        place, frames = self._here(kernel.operation)
        call = KernelCalled(len(self._calls), kernel, values, place, frames, self._iteration, parent, reads)
        self._calls.append(call)
        self._generator = generator_state("cpu")
        return call

    def _here(self, operation: Any) -> tuple[OpPlace, tuple[str, ...]]:
        """Return the site of the op that is about to be called, and the user's frames."""
        node = self._places.here(operation, {})
        if node.phase == "backward":
            self._phase = "optimizer"  # for the next ops, until a module is called or an op is differentiated
            return OpPlace("backward", node.module, node.sequence), self._frames.here("backward", node.sequence)
        if node.module is not None or node.sequence is not None:
            self._iteration += self._phase == "optimizer"
            self._phase = "forward"
        return OpPlace(self._phase, node.module, node.sequence), self._frames.here(self._phase, node.sequence)

    def _ended(self, call: KernelCalled, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> None:
        made = [output for output in tensors_in(outputs) if output.device.type == "lazy"]
        for tensor in made:
            self._made[lazy_tensor_id(tensor)] = weakref.ref(tensor)
        if self._is_over:
            return
        if self._unfilled.is_made_by(call):
            for _, real in pending_data(made):
                self._unfilled.made(call, real)
        if call.kernel.is_fallback:
            self._fell_back(call, args, kwargs, outputs)
        elif call.kernel.name == "aten::_to_copy" and not call.reads and call.parent is None:
            # Copies connect the core with ops on the tape: such an op may have made the source of a copy to the core,
            # and may take the result of a copy from it.
            source = args[0]
            if source.device.type == "cpu" and self._log.table.slot_of(source) is not None and made:
                self._copied(call, source, self._values.real(made[0]))
            elif source.device.type == "lazy" and not made:
                self._copied(call, self._values.of(source), outputs)

    def _copied(self, call: KernelCalled, source: torch.Tensor, real: torch.Tensor) -> None:
        """Record a copy between the CPU and the core. `real` is its result."""
        copying: Any = registered_operation("aten._to_copy.default")
        options = {"dtype": real.dtype}
        with apart():
            started_call = self._log.take(copying, (source,), options, call.place, grad=False)
            copy = copying(source, **options)
            self._log.complete(copying, (source,), options, started_call, copy, call.frames)
            self._number(call.iteration, call.number)
        self._values.adopt(copy, real, call.kernel.name)
        if real.device.type == "cpu":
            self._log.table.assign(real, self._log.table.view(copy, is_input=False).slot)

    def _fell_back(self, call: KernelCalled, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> None:
        """Record an op without a kernel in the core, which was executed on the CPU on the values of its arguments."""

        def ours(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self._values.of(value) if value.device.type == "lazy" else value
            return torch.device("cpu") if isinstance(value, torch.device) else value

        arguments, keywords = mapped(ours, tuple(args)), {name: mapped(ours, value) for name, value in kwargs.items()}
        operation, after = call.kernel.operation, generator_state("cpu")
        set_generator_state("cpu", self._generator)
        try:
            with apart():
                started_call = self._log.take(operation, arguments, keywords, call.place, grad=False)
                results = operation(*arguments, **keywords)
                self._log.complete(operation, arguments, keywords, started_call, results, call.frames)
                self._number(call.iteration, call.number)
        finally:
            set_generator_state("cpu", after)
        for result, output in zip(tensors_in(results), tensors_in(outputs), strict=True):
            self._values.adopt(
                result, self._values.real(output) if output.device.type == "lazy" else output, call.kernel.name
            )

    def _number(self, iteration: int, order: int) -> None:
        """Set the pass and the order of the call that was recorded last."""
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
        """Return the graph that is about to be executed for `wanted` (None: all live tensors), if there is one."""
        if wanted is None:
            alive = {number: living for number, made in self._made.items() if (living := made()) is not None}
            wanted = [alive[number] for number in sorted(alive)]  # the core's own order
        tensors = functional_tensors([tensor for tensor in wanted if tensor.device.type == "lazy"])
        roots = [tensor for tensor in tensors if not self._values.has_value(tensor)]
        if not roots:
            return None
        pending = PendingGraph.of(roots)
        for value in pending.given:  # before the execution, which may write into it
            self._values.standing_for(value)
        return pending

    def _executed(self, execution: PendingGraph, alone: torch.Tensor | None = None) -> None:
        """Record an executed graph op by op. Its results must equal those of the core's own execution.

        `alone` is the result of a graph that the core executed only for a copy to the CPU.
        """
        self._executions += 1
        inputs = [self._values.standing_for(value) for value in execution.given]
        graph = execution.executed()
        known_node = execution.known_nodes(graph, self._calls, self._first, self._executions)
        self._generator = generator_state("cpu")
        set_generator_state("cpu", execution.generator)
        try:
            with apart():
                results = executed_graph(self._log, graph, inputs, known_node)

                def once_more(other_inputs: list[torch.Tensor]) -> list[Any]:
                    set_generator_state("cpu", execution.generator)
                    return executed_graph(CallLog(), graph, other_inputs)

                self._unfilled.look(execution.given, inputs, once_more)
        finally:
            set_generator_state("cpu", self._generator)
        if alone is not None:
            self._values.adopt_alone(execution.roots[0], results[0], alone)
            return
        for root, result in zip(execution.roots, results, strict=True):
            self._values.adopt(result, self._values.real(root), "a graph")

    def _around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Execute an op unchanged, and record it if it takes and returns only tensors on the CPU."""
        placed = [leaf for leaf in leaves((*args, *kwargs.values())) if isinstance(leaf, (torch.Tensor, torch.device))]
        started_call = None
        # An op that the core itself executes is recorded with the core's graph or kernel that calls it.
        own = not self._executing and not self._within and not self._is_over and not is_off_tape(operation)
        if own and all((leaf if isinstance(leaf, torch.device) else leaf.device).type == "cpu" for leaf in placed):
            grad = torch.is_grad_enabled()

            def take() -> NotedCall:
                return self._log.take(operation, args, kwargs, self._here(operation)[0], grad=grad)

            started_call = self._look(take)
        outputs = operation(*args, **kwargs)
        if started_call is not None and all(output.device.type == "cpu" for output in tensors_in(outputs)):
            frames = script_frames(self._script)

            def complete() -> None:
                self._log.complete(operation, args, kwargs, started_call, outputs, frames)
                self._number(self._iteration, len(self._calls))

            self._look(complete)
        return outputs


def _goes_to_the_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether these are the arguments of a copy of a lazy tensor to the CPU."""
    source, *rest = args
    target = kwargs.get("device") or (rest[0].device if rest and isinstance(rest[0], torch.Tensor) else source.device)
    return bool(source.device.type == "lazy") and torch.device(target).type == "cpu"


def _executions() -> int:
    """Return the number of graphs that the core has executed."""
    counters = lazy_counters()
    return sum(counters.get(name, 0) for name in EXECUTIONS)
