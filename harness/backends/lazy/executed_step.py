"""A step on lazy tensors as the core executed it: the ops of its graphs in order, and those that fell back to the CPU.

A lazy tensor has no value when its op is called. The core adds a node to a graph, and executes the graph when a value
is needed. The execution may differ from executing the ops one by one: views are copies in another layout, values that
were not kept are computed again with new random numbers, and writes may be lost. The recorder therefore takes each
executed graph, executes it again op by op on copies of its inputs, and records these calls on the tape. A value may
differ from the core's own by rounding (see `TapedValues`); if it differs in its layout or its kind, there is no tape.

    h = drop(x @ w)          graph 1, executed by `float()`:      t_copy, mm, native_dropout, sum
    print(float(h.sum()))    graph 2, executed by the mark_step:  t_copy, mm, native_dropout, ... again
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in
from numdrift.kernels.swaps.sites import ModulePaths

from ...records.values.call_record import CallRecord
from ...records.values.unfilled_read import UnfilledRead
from ...tape.op_places import OpPlace
from ...tape.origin import StepFrames, line_of, script_frames
from ...tape.recording.call_log import CallLog, NotedCall
from ...tape.recording.followed_calls import FollowedOps, OpCall
from ...tape.recording.tape_recorder import is_off_tape
from ...tape.replaying.replay import generator_state, set_generator_state
from ...tape.step_settings import current_settings, setting_lines
from ...tape.tape import NotReplayable, Phase, Tape, mapped
from ...torch_private.deferred.lazy import (
    LAZY_KEY,
    lazy_counters,
    lazy_has_value,
    lazy_tensor_id,
    pending_data,
    set_lazy_source_locations,
)
from ...torch_private.deferred.lazy_syncs import EXECUTIONS, around_lazy_syncs
from ...torch_private.device_kernels import device_kernels
from ...torch_private.dispatching import registered_operation, without_dispatch_modes, without_function_modes
from ...torch_private.profiling.lazy_work import functional_tensors
from ..call_places import CallPlaces
from ..called_operators import is_called_by_harness
from ..deferring.held_back_step import HeldBackStep, apart
from ..followed_kernels import FollowedKernels, KernelCall
from .first_executions import FirstExecutions
from .lazy_following import COPIES
from .pending_graph import LazyCall, PendingGraph
from .taped_values import TapedValues
from .torchscript_tape import executed_graph
from .unfilled_memory import UnfilledMemory

TORCH = Path(torch.__file__).parent
OBSERVING = (__file__, *(str(TORCH / name) for name in ("_ops.py", "_compile.py", "_dynamo/eval_frame.py")))
"""Files whose frames are between an op and its caller while every op is observed."""


@dataclass(frozen=True, slots=True)
class BegunCall:
    """A call of one of the core's kernels that is about to run.

    reads: whether it copies a lazy tensor to the CPU.
    execution: the graph that the core executes for that copy, None if there is none.
    """

    call: KernelCall
    recorded: LazyCall
    reads: bool
    execution: PendingGraph | None

    @property
    def number(self) -> int:
        return self.recorded.number


class LazyStepRecorder(HeldBackStep):
    """The recorder of a lazy step."""

    device = "lazy"

    def __init__(self, step: int, script: str) -> None:
        super().__init__(step, CallLog())
        self._script = script
        self._calls: list[LazyCall] = []
        self._within: list[LazyCall] = []
        self._made: dict[int, weakref.ref[torch.Tensor]] = {}
        self._values = TapedValues(self._log)
        self._unfilled = UnfilledMemory()
        self._watched: list[tuple[str, torch.Tensor]] = []
        self._phase: Phase = "data"
        self._iteration = 0
        self._firsts = FirstExecutions()
        self._frames = StepFrames(script)
        self._executing = False
        self._executions = 0
        self._generator = torch.empty(0)

    def start(self) -> None:
        self._settings, self._set_at = current_settings(), dict(setting_lines.lines)
        modules = ModulePaths()
        self._places = CallPlaces(self._script, modules)
        had_locations = set_lazy_source_locations(True)
        kernels = FollowedKernels(
            device_kernels(LAZY_KEY), LAZY_KEY, self._kernel_begins, self._kernel_ended, self._kernel_failed
        )
        self._undo = [modules.close, lambda: set_lazy_source_locations(had_locations), kernels.close]
        self._undo.append(around_lazy_syncs(self._synced))
        mode = FollowedOps(self._op_begins, self._op_ended)
        mode.__enter__()  # type: ignore[no-untyped-call]
        self._undo.append(lambda: mode.__exit__(None, None, None))
        self._executions = _executions()
        self._open = True

    def over(self) -> None:
        """Mark the step as ended. Its pending ops are still to be executed."""
        self._is_over = True

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Record the current content of a value by which executions of the step are compared.

        A copy of a lazy tensor is added to the pending graph.
        """
        if self.reason is not None:
            return
        if tensor.device.type == "lazy":
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                self._watched.append((name, tensor.clone()))  # recorded like every kernel call of the core
        else:
            self._look(lambda: self._seen.append(self._watched_value(name, tensor, tensor)))

    def _has_value(self, tensor: torch.Tensor) -> bool:
        return lazy_has_value(tensor)

    def _represented(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        taped = self._values.standing_for(self._values.real(tensor))
        return taped, taped

    def give_up(self, reason: str) -> None:
        """Abandon the tape. Only the first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self._watched, self._log = [], CallLog()
            self._values = TapedValues(self._log)

    @property
    def unfilled(self) -> list[UnfilledRead]:
        """The calls that allocated uninitialised memory on which a result of the step depends."""
        reads = []
        for maker in self._unfilled.read:
            outer = maker.outermost
            op, line = outer.kernel.name.replace("::", "."), line_of(outer.frames[0]) if outer.frames else ""
            call = CallRecord(self._step, op, line, outer.place.phase, outer.place.module)
            reads.append(UnfilledRead(call, made_by=maker.kernel.name.replace("::", ".")))
        return reads

    def tape(self) -> Tape:
        """Return the recorded step, once the watched values have been computed.

        Raise NotReplayable with the reason if the record is incomplete.
        """
        unseen = _executions() - self._executions
        if unseen:
            graphs = "1 graph" if unseen == 1 else f"{unseen} graphs"
            self.give_up(f"the lazy core executed {graphs} that numdrift did not observe")
        if self.reason is not None:
            raise NotReplayable(self.reason)
        watched = list(self._seen)
        with apart():
            for name, tensor in self._watched:
                if not lazy_has_value(tensor):
                    raise NotReplayable(f"{name} was not computed by the end of the step")
                watched.append(self._watched_value(name, *self._represented(tensor)))
        return self._tape_with(watched)

    # The calls of the core's kernels.

    def _kernel_begins(self, call: KernelCall) -> BegunCall | None:
        reads = not self._within and is_called_by_harness(OBSERVING)
        recorded = self._look(lambda: self._recorded(call, reads=reads))
        if recorded is None:
            return None
        copies = call.kernel.name.partition("::")[2].partition(".")[0] in COPIES
        reading = copies and _goes_to_the_cpu(call.args, call.kwargs)
        execution = self._look(lambda: self._about_to_execute(call.args[:1])) if reading else None
        self._within.append(recorded)
        return BegunCall(call, recorded, reading, execution)

    def _kernel_ended(self, begun: BegunCall, outputs: Any) -> None:
        self._within.pop()
        execution = begun.execution
        if execution is not None:
            self._look(lambda: self._executed(execution, alone=outputs))
        elif begun.reads:  # the core may have executed a graph without ops for a value that came from the CPU
            self._executions = _executions()
        self._look(lambda: self._ended(begun.recorded, begun.call, outputs))

    def _kernel_failed(self, begun: BegunCall, error: BaseException) -> None:
        self._within.pop()

    def _recorded(self, call: KernelCall, *, reads: bool) -> LazyCall:
        values = [argument if isinstance(argument, (bool, int, float)) else None for argument in call.passed]
        parent = self._within[-1] if self._within else None
        place, frames = self._current_site(call.operation)
        number = len(self._calls)
        self._calls.append(LazyCall(number, call.kernel, values, place, frames, self._iteration, parent, reads))
        self._generator = generator_state("cpu")
        return self._calls[-1]

    def _current_site(self, operation: Any) -> tuple[OpPlace, tuple[str, ...]]:
        """Return the site of the op that is about to be called, and the user's frames."""
        node = self._places.here(operation, {})
        if node.phase == "backward":
            self._phase = "optimizer"  # for the next ops, until a module is called or an op is differentiated
            return OpPlace("backward", node.module, node.sequence), self._frames.here("backward", node.sequence)
        if node.module is not None or node.sequence is not None:
            self._iteration += self._phase == "optimizer"
            self._phase = "forward"
        return OpPlace(self._phase, node.module, node.sequence), self._frames.here(self._phase, node.sequence)

    def _ended(self, call: LazyCall, kernel_call: KernelCall, outputs: Any) -> None:
        made = [output for output in tensors_in(outputs) if output.device.type == "lazy"]
        for tensor in made:
            self._made[lazy_tensor_id(tensor)] = weakref.ref(tensor)
        if self._is_over:
            return
        if self._unfilled.is_made_by(call):
            for _, real in pending_data(made):
                self._unfilled.made(call, real)
        if call.kernel.is_fallback:
            self._fell_back(call, kernel_call, outputs)
        elif call.kernel.name == "aten::_to_copy" and not call.reads and call.parent is None:
            # Copies connect the core with ops on the CPU: such an op may have made the source of a copy to the core,
            # and may take the result of a copy from the core.
            source = kernel_call.args[0]
            if source.device.type == "cpu" and self._log.table.slot_of(source) is not None and made:
                self._copied(call, source, self._values.real(made[0]))
            elif source.device.type == "lazy" and not made:
                self._copied(call, self._values.of(source), outputs)

    def _copied(self, call: LazyCall, source: torch.Tensor, real: torch.Tensor) -> None:
        """Record a copy between the CPU and the core. `real` is its result.

        The values on the tape are all on the CPU, so a copy that keeps the dtype is one in place of a view.
        """
        keeps = source.dtype == real.dtype
        copying: Any = registered_operation("aten.alias_copy.default" if keeps else "aten._to_copy.default")
        copy = self._repeated(call, OpCall(copying, (source,), {} if keeps else {"dtype": real.dtype}))
        self._values.adopt(copy, real, call.kernel.name)
        if real.device.type == "cpu":
            self._log.table.assign(real, self._log.table.view(copy, is_input=False).slot)

    def _fell_back(self, call: LazyCall, kernel_call: KernelCall, outputs: Any) -> None:
        """Record an op that the core has no kernel for. It was executed on the CPU, on the values of its arguments."""

        def ours(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self._values.of(value) if value.device.type == "lazy" else value
            return torch.device("cpu") if isinstance(value, torch.device) else value

        arguments = mapped(ours, kernel_call.args)
        keywords = {name: mapped(ours, value) for name, value in kernel_call.kwargs.items()}
        after = generator_state("cpu")
        set_generator_state("cpu", self._generator)
        try:
            results = self._repeated(call, OpCall(call.kernel.operation, arguments, keywords))
        finally:
            set_generator_state("cpu", after)
        for result, output in zip(tensors_in(results), tensors_in(outputs), strict=True):
            self._values.adopt(
                result, self._values.real(output) if output.device.type == "lazy" else output, call.kernel.name
            )

    def _repeated(self, call: LazyCall, repetition: OpCall) -> Any:
        """Repeat a call on the CPU, record the repetition, and return its outputs."""
        with apart():
            noted = self._log.take(repetition, call.place)
            outputs = repetition.run()
            self._log.complete(noted, outputs, call.frames)
            self._number(call.iteration, call.number)
        return outputs

    def _number(self, iteration: int, order: int) -> None:
        """Set the `iteration` and `order` of the latest recorded call."""
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
        for value in pending.inputs:  # before the execution, which may overwrite the value
            self._values.standing_for(value)
        return pending

    def _executed(self, execution: PendingGraph, alone: torch.Tensor | None = None) -> None:
        """Record an executed graph op by op. Its results must equal those of the core's own execution.

        `alone` is the result of a graph that the core executed only for a copy to the CPU.
        """
        self._executions += 1
        inputs = [self._values.standing_for(value) for value in execution.inputs]
        graph = execution.executed()
        self._firsts.next_graph(len(self._calls))
        known_node = execution.known_nodes(graph, self._calls, self._executions)
        self._generator = generator_state("cpu")
        set_generator_state("cpu", execution.generator)
        try:
            with apart():
                results = executed_graph(self._log, graph, inputs, known_node, self._firsts)

                def once_more(other_inputs: list[torch.Tensor]) -> list[Any]:
                    set_generator_state("cpu", execution.generator)
                    return executed_graph(CallLog(), graph, other_inputs)

                self._unfilled.look(execution.inputs, inputs, once_more)
        finally:
            set_generator_state("cpu", self._generator)
        if alone is not None:
            self._values.adopt_alone(execution.roots[0], results[0], alone)
            return
        for root, result in zip(execution.roots, results, strict=True):
            self._values.adopt(result, self._values.real(root), "a graph")

    # The ops on the CPU.

    def _op_begins(self, call: OpCall) -> NotedCall | None:
        """Note an op that takes only tensors on the CPU."""
        # An op that the core itself executes is recorded with the core's graph or kernel that calls it.
        if self._executing or self._within or self._is_over or is_off_tape(call.operation):
            return None
        if not call.device_types <= {"cpu"}:
            return None
        return self._look(lambda: self._log.take(call, self._current_site(call.operation)[0]))

    def _op_ended(self, noted: NotedCall, outputs: Any) -> None:
        if any(output.device.type != "cpu" for output in tensors_in(outputs)):
            return
        frames = script_frames(self._script)

        def complete() -> None:
            self._log.complete(noted, outputs, frames)
            self._number(self._iteration, len(self._calls))

        self._look(complete)


def _goes_to_the_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether these are the arguments of a copy of a lazy tensor to the CPU."""
    source, *rest = args
    target = kwargs.get("device") or (rest[0].device if rest and isinstance(rest[0], torch.Tensor) else source.device)
    return bool(source.device.type == "lazy") and torch.device(target).type == "cpu"


def _executions() -> int:
    """Return the number of graphs that the core has executed."""
    counters = lazy_counters()
    return sum(counters.get(name, 0) for name in EXECUTIONS)
