"""The tape of a step in mode `xla`: the ops that torch_xla was called with, and their results in its compiled graphs.

An xla tensor has no value when its op is called. torch_xla adds a node to a graph, and compiles and executes the graph
when it is cut. Each op is therefore also executed on twins on the CPU. The twins show how memory is laid out and which
tensors are views of which, as on the tape of any other mode. The values on the tape are not those of the twins: the
values that the step starts from are read before the step, and the results of its ops are read when the step is executed
again (see `executed_again`).

torch_xla executes no op in place: each new value has a new number, and so a new twin.

    w.mul_(2)    mul(value 1, 2.0) returns value 16, and `_propagate_xla_data(value 1, value 16)` computes nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.op_places import StepPlaces
from ...tape.origin import StepFrames
from ...tape.recording.call_log import CallLog, CallValues, NotedCall
from ...tape.recording.followed_calls import FollowedOps, OpCall
from ...tape.recording.tape_recorder import is_off_tape
from ...tape.replaying.replay import generator_state, set_generator_state
from ...tape.step_settings import current_settings
from ...tape.tape import CompiledNode, NotReplayable, Tape, Watched, leaves, mapped
from ...torch_private.deferred.xla import own_reads
from ...torch_private.deferred.xla_tensors import is_pending
from ...torch_private.operators import view_behind
from ..deferring.held_back_step import Found, HeldBackStep, apart
from .composed_ops import ComposedOps
from .executed_again import OVERWRITING, UNREAD, ExecutedOp, Program, ValueArgument, ValueKey, ValueNumber
from .seen_pools import SeenPools
from .settled_values import SettledValues
from .step_twins import StepTwins
from .xla_kernels import XlaKernels

NOTHING = ("_propagate_xla_data",)
"""Ops that torch_xla calls for its own bookkeeping."""

HERE = ("xla", "cuda")
"""The mode's device, and CUDA: a script that asks for CUDA, as in `x.to(0)`, gets the mode's device instead."""

ON_THE_DEVICE = (
    "the step draws random numbers from torch_xla's own generator; in the mode xla,fallback_random=on, it draws the "
    "numbers of eager mode"
)
GRAPH = "xla"
"""The name that all graphs of a step share on its tape.

The graphs are not distinguished, since only the mark-step policy determines where the step is cut.
"""


@dataclass(frozen=True, slots=True, eq=False)
class BegunOp:
    """An op that is about to be executed.

    executed: its entry in the program, None for an op that uses only the CPU.
    twin: the call of the op on the twins of its arguments.
    """

    executed: ExecutedOp | None
    twin: NotedCall


class XlaStepRecorder(HeldBackStep):
    """The recorder of a step in mode `xla`.

    `observe_cuts` registers a function to be called after each cut. `unreadable` are the unreadable values of all steps
    of a run (see `read_values`).
    """

    device = "xla"

    def __init__(
        self, step: int, script: str, observe_cuts: Callable[..., Callable[[], None]], unreadable: set[ValueKey]
    ) -> None:
        super().__init__(step, CallLog(CallValues()))
        self._observe_cuts = observe_cuts
        self._unreadable = unreadable
        self._program = Program()
        self._frames = StepFrames(script)
        self._twins = StepTwins(self._program, self._takes)
        self._groups: dict[int, int] = {}
        self._values = SettledValues()

    def start(self) -> None:
        self._settings = current_settings()
        self._places = StepPlaces(modules=True)
        self._composed, pools = ComposedOps(), SeenPools()
        mode = FollowedOps(self._before, self._after)
        mode.__enter__()  # type: ignore[no-untyped-call]
        own_reads.append(self._reads)
        self._undo = [
            self._places.close,
            self._composed.close,
            pools.close,
            lambda: mode.__exit__(None, None, None),
            lambda: own_reads.remove(self._reads),
            self._observe_cuts(lambda: None, lambda: None if self._is_over else self._look(self._cut)),
        ]
        self._open = True

    def over(self) -> None:
        """End the step. Its pending ops are still to be executed."""
        self._look(self._cut)
        self._is_over = True

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Record the current value of a tensor by which executions of the step are compared."""

        def look() -> None:
            if tensor.device.type == "xla":
                self._values.hold(name, self._twins.number(tensor), tensor)
            else:
                self._seen.append(self._watched_value(name, tensor, tensor))

        self._look(look)

    def give_up(self, reason: str) -> None:
        """Abandon the tape. Only the first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self._seen, self._batch, self._values = [], [], SettledValues()
            self._log, self._program = CallLog(), Program()
            self._twins = StepTwins(self._program, self._takes)

    def tape(self) -> Tape:
        """Return the recorded tape, once the watched values have been computed.

        Raise NotReplayable with the reason if the tape is incomplete.
        """
        if self.reason is not None:
            raise NotReplayable(self.reason)
        watched = list(self._seen)
        with apart():
            self._values.read()
            if self._values.lacking is not None:
                raise NotReplayable(f"{self._values.lacking} was not computed by the end of the step")
            for name, number, value in self._values:
                twin = self._twins.at_end(number, value)
                self._program.results[name] = number, value
                view = self._log.table.view(twin, is_input=True)
                watched.append(Watched(len(self._log.calls), name, view, value))
        return self._tape_with(watched)

    def kernels(self, tape: Tape) -> XlaKernels:
        """Return the kernels of the step on `tape`. They execute the step again to read the results of its ops."""
        values = self._log.values
        assert values is not None
        return XlaKernels(tape, self._program, values, self._unreadable)

    def _takes(self, value: torch.Tensor) -> None:
        """Record a value from before the step as an input."""
        self._log.table.view(value, is_input=True)

    def _has_value(self, tensor: torch.Tensor) -> bool:
        return not is_pending(tensor)

    def _is_represented(self, tensor: torch.Tensor) -> bool:
        return self._twins.is_known(tensor)

    def _represented(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        twin = self._twins.of(tensor)
        return twin, twin

    # The ops, and their twins.

    def _before(self, call: OpCall) -> BegunOp | None:
        name = call.operation.name()
        if self._is_over or is_off_tape(call.operation) or name.partition("::")[2] in NOTHING:
            return None
        return self._look(lambda: self._begins(call))

    def _after(self, begun: BegunOp, outputs: Any) -> None:
        """After an op has run, execute it again on the twins of its arguments, on the CPU."""
        self._look(lambda: self._ended(begun, outputs))

    def _begins(self, call: OpCall) -> BegunOp:
        operation = call.operation
        if not call.is_overload:
            raise NotReplayable(f"the step calls the higher-order operator {operation}")
        executed = None
        if not call.device_types.isdisjoint(HERE):
            noted_keywords = {name: mapped(self._noted, value) for name, value in call.kwargs.items()}
            executed = ExecutedOp(operation, mapped(self._noted, call.args), noted_keywords)
        self._twins.taking = str(operation)
        # Where torch_xla makes a copy (`t_copy`), the twin's op is the view op that the script called (`t`). Nothing
        # writes to that view.
        twin_operation = view_behind(operation) or operation
        arguments = mapped(self._ours, call.args)
        keywords = {name: mapped(self._ours, value) for name, value in call.kwargs.items()}
        if twin_operation is torch.ops.aten.view.default:
            try:
                arguments[0].view(arguments[1])
            except RuntimeError:  # the argument's memory layout does not allow this view
                twin_operation = torch.ops.aten.reshape.default
        # Below autograd nothing requires a gradient, so a forward op is recognised by a new autograd node. A view does
        # not count, because a loss that is detached after the backward gets a node too.
        place = self._places.here(grad=call.grad, differentiable=view_behind(operation) is None)
        return BegunOp(executed, self._log.take(OpCall(twin_operation, arguments, keywords), place))

    def _ended(self, begun: BegunOp, outputs: Any) -> None:
        noted, operation = begun.twin, begun.twin.call.operation
        place, position = noted.place, len(self._log.calls)
        frames = self._frames.here(place.phase, place.sequence)
        if begun.executed is None:  # an op on the CPU, which has been executed already
            self._log.complete(noted, outputs, frames)
            return
        after = generator_state("cpu")
        with apart():
            for moved in noted.generators:
                set_generator_state(moved.device, moved.state)
            twin_outputs = noted.call.run()
            if not torch.equal(generator_state("cpu"), after):
                set_generator_state("cpu", after)
                raise NotReplayable(ON_THE_DEVICE)
        # Plain numbers are taken from torch_xla's results, since the script continues with them.
        results = list(leaves(outputs)) if outputs is not None else []
        twins = list(leaves(twin_outputs)) if twin_outputs is not None else []
        if [_shape(result) for result in results] != [_shape(twin) for twin in twins]:
            raise NotReplayable(f"{operation} returns tensors of a different shape or dtype on xla than on the CPU")
        shown = [
            twin if isinstance(twin, torch.Tensor) else number for twin, number in zip(twins, results, strict=True)
        ]
        origin, group = str(operation), position
        whole = self._composed.whole(begun.executed.operation, place.sequence if place.phase == "backward" else None)
        if whole is not None:
            origin, group = str(whole.operation), self._groups.setdefault(whole.number, position)
        compiled = CompiledNode(GRAPH, f"{operation.name()}_{position}", origin, group)
        call = self._log.complete(noted, shown, frames, compiled)
        numbers: list[ValueNumber | None] = []
        for result, twin in zip(results, twins, strict=True):
            if isinstance(result, torch.Tensor) and result.device.type == "xla":
                overwrites = (
                    operation.name() in OVERWRITING and self._twins.number(result) in begun.executed.value_numbers()
                )
                number = self._twins.made(result, twin, overwrites=overwrites)
                numbers.append(number)
            else:
                numbers.append(None)
        self._program.ops.append(
            replace(
                begun.executed,
                outputs=tuple(numbers),
                position=position,
                drawn=[twin.detach().clone() for twin in twins] if call.draw is not None else None,
                unread={at: twins[at].detach().clone() for at in UNREAD.get(operation.name(), ())},
            )
        )

    def _ours(self, value: Any) -> Any:
        """Return the argument that the twin's op takes on the CPU in place of `value`."""
        if isinstance(value, torch.Tensor):
            return self._twins.of(value) if value.device.type == "xla" else value
        return torch.device("cpu") if isinstance(value, torch.device) and value.type in HERE else value

    def _noted(self, value: Any) -> Any:
        """Return an argument in the program's form: an xla tensor by its number, any other tensor as a copy."""
        if not isinstance(value, torch.Tensor):
            return torch.device("xla") if isinstance(value, torch.device) and value.type in HERE else value
        return ValueArgument(self._twins.number(value)) if value.device.type == "xla" else value.detach().clone()

    def _cut(self) -> None:
        """Record that all pending work has been executed."""
        self._values.read()
        self._twins.cut(self._values.numbers)

    @contextmanager
    def _reads(self) -> Iterator[None]:
        """Record nothing while numdrift reads values for itself, because these reads are not ops of the step."""
        before, self._open = self._open, False
        try:
            yield
        finally:
            self._open = before

    def _look(self, look: Callable[[], Found]) -> Found | None:
        with torch.no_grad():
            return super()._look(look)


def _shape(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None
