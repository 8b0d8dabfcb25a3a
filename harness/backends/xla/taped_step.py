"""The tape of a step in mode `xla`: the ops that torch_xla was called with, and their results in its compiled graphs.

An xla tensor has no value when its op is called. torch_xla adds a node to a graph, and compiles and executes the graph
when it is cut. Each op is therefore also executed on twins on the CPU. The twins show how memory is laid out and which
tensors are views of which, as on the tape of any other mode. The values on the tape are not those of the twins: the
values that the step starts from are read before it, and the results of its ops are read when the step is executed again
(see `executed_again`).

torch_xla executes no op in place: each new value has a new number, and so a new twin.

    w.mul_(2)    mul(value 1, 2.0) returns value 16, and `_propagate_xla_data(value 1, value 16)` computes nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.op_places import StepPlaces, owned_by_one, owners_of
from ...tape.origin import StepFrames
from ...tape.recording.call_log import CallLog, CallValues, NotedCall
from ...tape.recording.tape_recorder import is_off_tape
from ...tape.replaying.replay import generator_state, set_generator_state
from ...tape.step_settings import current_settings
from ...tape.tape import CompiledNode, NotReplayable, Tape, Watched, leaves, mapped
from ...torch_private.deferred.xla import own_reads
from ...torch_private.deferred.xla_tensors import is_pending
from ...torch_private.dispatching import InterceptedOps, is_operation_overload
from ...torch_private.operators import view_behind
from ..held_back_step import HeldBackStep, apart
from .composed_ops import ComposedOps
from .executed_again import OVERWRITING, UNREAD, ExecutedOp, Given, Program, ValueKey, ValueNumber
from .seen_pools import SeenPools
from .settled_values import SettledValues
from .step_twins import StepTwins
from .xla_kernels import XlaKernels

NOTHING = ("_propagate_xla_data",)
"""Ops that torch_xla calls for its own bookkeeping."""

HERE = ("xla", "cuda")
"""The mode's device, and CUDA: a script that asks for CUDA, as in `x.to(0)`, gets the mode's device instead."""

ON_THE_DEVICE = (
    "the step draws random numbers by the device's own generator, which torch_xla has apart from torch's; in the mode "
    "xla,fallback_random=on they are those of eager mode"
)
GRAPH = "xla"
"""The common name of all graphs of a step on its tape, since the policy alone determines where they are cut."""


@dataclass(frozen=True, slots=True, eq=False)
class BegunOp:
    """An op that is about to be executed, with the call of its twin.

    `executed` is its entry in the program, None for an op on the CPU alone.
    """

    executed: ExecutedOp | None
    operation: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    taken: NotedCall


class XlaStepRecorder(HeldBackStep):
    """The recorder of a step in mode `xla`, from `start` to `stop`.

    It does the same as `tape.tape_recorder`, whose ops have values at once. An op that cannot be recorded abandons the
    tape (see `reason`); training continues. `observe_cuts` registers a function to be called after each cut.
    `unreadable` are the unreadable values of all steps of a run (see `read_values`).
    """

    def __init__(
        self, step: int, script: str, observe_cuts: Callable[..., Callable[[], None]], unreadable: set[ValueKey]
    ) -> None:
        super().__init__()
        self._step = step
        self._observe_cuts = observe_cuts
        self._unreadable = unreadable
        self._log = CallLog(CallValues())
        self._program = Program()
        self._frames = StepFrames(script)
        self._twins = StepTwins(self._program, self._takes)
        self._groups: dict[int, int] = {}
        self._values = SettledValues()
        self._seen: list[Watched] = []
        self._given: list[Watched] = []
        self._starts: list[Watched] = []
        self._settings: Mapping[str, Any] = {}

    def start(self) -> None:
        self._settings = current_settings()
        self._places = StepPlaces(modules=True)
        self._composed, pools = ComposedOps(), SeenPools()
        mode = InterceptedOps(self._around)
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

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """Record the values that the step starts from, by name."""

        def look() -> None:
            for name, tensor in values.items():
                if tensor.device.type == "xla" and not is_pending(tensor):
                    twin = self._twins.of(tensor)
                    # only the view of this record is used
                    self._starts.append(Watched(0, name, self._log.table.view(twin, is_input=True), twin))

        self._look(look)

    def over(self) -> None:
        """End the step. Its pending ops are still to be executed."""
        self._look(self._cut)
        self._is_over = True

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Record the current value of a tensor that the step is compared by."""

        def look() -> None:
            if tensor.device.type == "xla":
                self._values.hold(name, self._twins.number(tensor), tensor)
            else:
                self._seen.append(self._as_it_is(name, tensor))

        self._look(look)

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record the tensors that the first root module is about to be called with, if their values are available."""

        def look() -> None:
            for name, tensor in tensors.items():
                if tensor.device.type != "xla":
                    self._given.append(self._as_it_is(name, tensor))
                elif self._twins.is_known(tensor):
                    self._given.append(self._as_it_is(name, self._twins.of(tensor)))

        self._look(look)

    def overwritten(self, tensor: torch.Tensor) -> None:
        """Do nothing: a tensor with values other than the script's is an input of the step, with a new number."""

    def give_up(self, reason: str) -> None:
        """Abandon the tape, and keep the first reason."""
        if self.reason is None:
            self.reason = reason
            self._seen, self._given, self._values = [], [], SettledValues()
            self._log, self._program = CallLog(), Program()
            self._twins = StepTwins(self._program, self._takes)

    def tape(self) -> Tape:
        """Return the recorded tape, once the watched values have been executed.

        Raise NotReplayable with the reason if the tape is not the whole step.
        """
        if self.reason is not None:
            raise NotReplayable(self.reason)
        watched = list(self._seen)
        with apart():
            self._values.read()
            if self._values.lacking is not None:
                raise NotReplayable(f"{self._values.lacking} was not executed when the step had ended")
            for name, number, value in self._values:
                twin = self._twins.at_end(number, value)
                self._program.results[name] = number, value
                view = self._log.table.view(twin, is_input=True)
                watched.append(Watched(len(self._log.calls), name, view, value))
        calls = self._log.calls
        owners = owned_by_one(calls, owners_of(calls, [*watched, *self._starts]))
        owned_calls = [
            replace(call, owners=call_owners) if call_owners else call
            for call, call_owners in zip(calls, owners, strict=True)
        ]
        table, starts = self._log.table, {start.name: start.view for start in self._starts}
        arguments = tuple(self._given)
        return Tape(
            self._step, table.slots, table.inputs, tuple(owned_calls), tuple(watched), self._settings, starts, arguments
        )

    def kernels(self, tape: Tape) -> XlaKernels:
        """Return the kernels of the step on `tape`. They execute it again to read the results of its ops."""
        values = self._log.values
        assert values is not None
        return XlaKernels(tape, self._program, values, self._unreadable)

    def _takes(self, value: torch.Tensor) -> None:
        """Record a value from before the step as an input."""
        self._log.table.view(value, is_input=True)

    def _as_it_is(self, name: str, tensor: torch.Tensor) -> Watched:
        view = self._log.table.view(tensor.detach(), is_input=True)
        return Watched(len(self._log.calls), name, view, tensor.detach().clone())

    # The ops, and their twins.

    def _around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Execute an op unchanged, and then on the twins on the CPU."""
        started = None
        if not (self._is_over or is_off_tape(operation) or operation.name().partition("::")[2] in NOTHING):
            grad = torch.is_grad_enabled()
            started = self._look(lambda: self._begins(operation, args, kwargs, grad=grad))
        outputs = operation(*args, **kwargs)
        if started is not None:
            self._look(lambda: self._ended(started, outputs))
        return outputs

    def _begins(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, grad: bool) -> BegunOp:
        if not is_operation_overload(operation):
            raise NotReplayable(f"the step calls the higher-order operator {operation}")
        placed = [leaf for leaf in leaves((*args, *kwargs.values())) if isinstance(leaf, (torch.Tensor, torch.device))]
        executed = None
        if any((leaf if isinstance(leaf, torch.device) else leaf.device).type in HERE for leaf in placed):
            noted_keywords = {name: mapped(self._noted, value) for name, value in kwargs.items()}
            executed = ExecutedOp(operation, mapped(self._noted, args), noted_keywords)
        self._twins.taking = str(operation)
        # Where torch_xla makes a copy, the twin is a view, which is what the script called. Nothing writes to it.
        twin_operation = view_behind(operation) or operation
        arguments = mapped(self._ours, args)
        keywords = {name: mapped(self._ours, value) for name, value in kwargs.items()}
        if twin_operation is torch.ops.aten.view.default:
            try:
                arguments[0].view(arguments[1])
            except RuntimeError:  # its memory layout does not allow this view
                twin_operation = torch.ops.aten.reshape.default
        # Below autograd nothing requires a gradient, so a forward op is recognised by a new autograd node. A view does
        # not count, because a loss that is detached after the backward gets a node too.
        place = self._places.here(grad=grad, differentiable=view_behind(operation) is None)
        noted = self._log.take(twin_operation, arguments, keywords, place, grad=False)
        return BegunOp(executed, twin_operation, arguments, keywords, noted)

    def _ended(self, begun: BegunOp, outputs: Any) -> None:
        operation, arguments, keywords, noted = begun.operation, begun.arguments, begun.keywords, begun.taken
        place, position = noted.place, len(self._log.calls)
        frames = self._frames.here(place.phase, place.sequence)
        if begun.executed is None:  # an op on the CPU, which has been executed already
            self._log.complete(operation, arguments, keywords, noted, outputs, frames)
            return
        after = generator_state("cpu")
        with apart():
            for moved in noted.generators:
                set_generator_state(moved.device, moved.state)
            twin_outputs = operation(*arguments, **keywords)
            if not torch.equal(generator_state("cpu"), after):
                set_generator_state("cpu", after)
                raise NotReplayable(ON_THE_DEVICE)
        # Plain numbers are taken from torch_xla's results, since the script continues with them.
        results = list(leaves(outputs)) if outputs is not None else []
        twins = list(leaves(twin_outputs)) if twin_outputs is not None else []
        if [_shape(result) for result in results] != [_shape(twin) for twin in twins]:
            raise NotReplayable(f"{operation} gives other tensors on xla than on the CPU")
        shown = [
            twin if isinstance(twin, torch.Tensor) else number for twin, number in zip(twins, results, strict=True)
        ]
        origin, group = str(operation), position
        whole = self._composed.whole(begun.executed.operation, place.sequence if place.phase == "backward" else None)
        if whole is not None:
            origin, group = str(whole.operation), self._groups.setdefault(whole.number, position)
        compiled = CompiledNode(GRAPH, f"{operation.name()}_{position}", origin, group)
        call = self._log.complete(operation, arguments, keywords, noted, shown, frames, compiled)
        numbers: list[ValueNumber | None] = []
        for result, twin in zip(results, twins, strict=True):
            if isinstance(result, torch.Tensor) and result.device.type == "xla":
                overwrites = operation.name() in OVERWRITING and self._twins.number(result) in begun.executed.given()
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
        """Return an argument in the program's form: a tensor on the device by its number, any other as a copy."""
        if not isinstance(value, torch.Tensor):
            return torch.device("xla") if isinstance(value, torch.device) and value.type in HERE else value
        return Given(self._twins.number(value)) if value.device.type == "xla" else value.detach().clone()

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

    def _look(self, look: Callable[[], Any]) -> Any:
        with torch.no_grad():
            return super()._look(look)


def _shape(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None
