"""A step in mode `xla` as a tape: the ops that torch_xla was given, each with what it gave in its compiled graphs.

An xla tensor has no value when its op is called: torch_xla notes a node, and compiles and executes many as one graph
where it is cut. So each op is also executed on a twin on the CPU, which says how its memory lies and what is a view of
what, as on the tape of any other mode. The values on the tape are not those of the twins: what the step starts from is
read before, and what its ops really gave is read when the step has been executed once more (see `executed_again`).

torch_xla is given no op in place: a new value has a number of its own, and so a twin of its own.

    w.mul_(2)    mul(value 1, 2.0) gives value 16, and `_propagate_xla_data(value 1, value 16)` computes nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.call_log import CallLog, CallValues, NotedCall
from ...tape.op_places import StepPlaces, owned_by_one, owners_of
from ...tape.origin import StepFrames
from ...tape.replay import generator_state, set_generator_state
from ...tape.step_settings import current_settings
from ...tape.tape import CompiledNode, NotReplayable, Tape, Watched, leaves, mapped
from ...tape.tape_recorder import is_off_tape
from ...torch_private.dispatching import InterceptedOps, is_operation_overload
from ...torch_private.operators import view_behind
from ...torch_private.xla import own_reads
from ...torch_private.xla_tensors import is_pending
from ..held_back_step import HeldBackStep, apart
from .composed_ops import ComposedOps
from .executed_again import OVERWRITING, UNREAD, ExecutedOp, Given, Program, ValueKey, ValueNumber
from .seen_pools import SeenPools
from .settled_values import SettledValues
from .step_twins import StepTwins
from .xla_kernels import XlaKernels

NOTHING = ("_propagate_xla_data",)
"""Ops that torch_xla has for its own book-keeping."""

HERE = ("xla", "cuda")
"""The mode's device, and what a script says that asks for CUDA and gets it: `x.to(0)`."""

ON_THE_DEVICE = (
    "the step draws random numbers by the device's own generator, which torch_xla has apart from torch's; in the mode "
    "xla,fallback_random=on they are those of eager mode"
)
GRAPH = "xla"
"""What the graphs of a step are called on its tape, as one: where they are cut changes with the policy."""


@dataclass(frozen=True, slots=True, eq=False)
class BegunOp:
    """An op that is about to be executed: what the program is to say of it, None for one on the CPU alone, and how its
    twin is called."""

    executed: ExecutedOp | None
    operation: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    taken: NotedCall


class XlaStepRecorder(HeldBackStep):
    """Records from `start` to `stop`, as `tape.tape_recorder` does where ops have values. Whatever cannot be taken ends
    the tape, with the `reason`, and not the training. `observe_cuts` has a function called after each cut; `unreadable`
    is what is known of all steps of a run (see `read_values`)."""

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
        """Take note of what the step starts from, by names."""

        def look() -> None:
            for name, tensor in values.items():
                if tensor.device.type == "xla" and not is_pending(tensor):
                    twin = self._twins.of(tensor)
                    # of which the view is used alone
                    self._starts.append(Watched(0, name, self._log.table.view(twin, is_input=True), twin))

        self._look(look)

    def over(self) -> None:
        """The step has ended; what it has left pending is still to be executed."""
        self._look(self._cut)
        self._is_over = True

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note a value that the step is compared by, as it is now."""

        def look() -> None:
            if tensor.device.type == "xla":
                self._values.hold(name, self._twins.number(tensor), tensor)
            else:
                self._seen.append(self._as_it_is(name, tensor))

        self._look(look)

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note what the first root module is about to be called with, of what has a value by then."""

        def look() -> None:
            for name, tensor in tensors.items():
                if tensor.device.type != "xla":
                    self._given.append(self._as_it_is(name, tensor))
                elif self._twins.is_known(tensor):
                    self._given.append(self._as_it_is(name, self._twins.of(tensor)))

        self._look(look)

    def given(self, tensor: torch.Tensor) -> None:
        """A tensor holds other values than the script has given it: it is an input, and has another number."""

    def give_up(self, reason: str) -> None:
        """End the tape; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._seen, self._given, self._values = [], [], SettledValues()
            self._log, self._program = CallLog(), Program()
            self._twins = StepTwins(self._program, self._takes)

    def tape(self) -> Tape:
        """What was recorded, once what is watched has been executed. Raises NotReplayable with the reason where that is
        not the whole step."""
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
        named = [replace(call, owners=found) if found else call for call, found in zip(calls, owners, strict=True)]
        table, starts = self._log.table, {one.name: one.view for one in self._starts}
        given = tuple(self._given)
        return Tape(self._step, table.slots, table.inputs, tuple(named), tuple(watched), self._settings, starts, given)

    def kernels(self, tape: Tape) -> XlaKernels:
        """The kernels of the step that `tape` gave: what its ops gave is read by executing it once more."""
        values = self._log.values
        assert values is not None
        return XlaKernels(tape, self._program, values, self._unreadable)

    def _takes(self, value: torch.Tensor) -> None:
        """The step takes a value from before it."""
        self._log.table.view(value, is_input=True)

    def _as_it_is(self, name: str, tensor: torch.Tensor) -> Watched:
        view = self._log.table.view(tensor.detach(), is_input=True)
        return Watched(len(self._log.calls), name, view, tensor.detach().clone())

    # The ops, and their twins.

    def _around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an op executed as it would be, and by its twin on the CPU."""
        taken = None
        if not (self._is_over or is_off_tape(operation) or operation.name().partition("::")[2] in NOTHING):
            grad = torch.is_grad_enabled()
            taken = self._look(lambda: self._begins(operation, args, kwargs, grad=grad))
        outputs = operation(*args, **kwargs)
        if taken is not None:
            self._look(lambda: self._ended(taken, outputs))
        return outputs

    def _begins(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, grad: bool) -> BegunOp:
        if not is_operation_overload(operation):
            raise NotReplayable(f"the step calls the higher-order operator {operation}")
        given = [one for one in leaves((*args, *kwargs.values())) if isinstance(one, (torch.Tensor, torch.device))]
        executed = None
        if any((one if isinstance(one, torch.device) else one.device).type in HERE for one in given):
            named = {name: mapped(self._noted, one) for name, one in kwargs.items()}
            executed = ExecutedOp(operation, mapped(self._noted, args), named)
        self._twins.taking = str(operation)
        # What torch_xla has as a copy is a view of the twin, as the script has asked for: it is written to by nobody.
        ours = view_behind(operation) or operation
        arguments = mapped(self._ours, args)
        keywords = {name: mapped(self._ours, one) for name, one in kwargs.items()}
        if ours is torch.ops.aten.view.default:
            try:
                arguments[0].view(arguments[1])
            except RuntimeError:  # its memory lies otherwise: there is no such view of it
                ours = torch.ops.aten.reshape.default
        # Below autograd nothing requires a gradient: whether a node was made for the op has to tell. One is also made
        # for a loss that is detached after the backward.
        place = self._places.here(grad=grad, differentiable=view_behind(operation) is None)
        taken = self._log.take(ours, arguments, keywords, place, grad=False)
        return BegunOp(executed, ours, arguments, keywords, taken)

    def _ended(self, begun: BegunOp, outputs: Any) -> None:
        operation, arguments, keywords, taken = begun.operation, begun.arguments, begun.keywords, begun.taken
        place, position = taken.place, len(self._log.calls)
        frames = self._frames.here(place.phase, place.sequence)
        if begun.executed is None:  # an op on the CPU, which has been executed already
            self._log.complete(operation, arguments, keywords, taken, outputs, frames)
            return
        after = generator_state("cpu")
        with apart():
            for moved in taken.generators:
                set_generator_state(moved.device, moved.state)
            twins = operation(*arguments, **keywords)
            if not torch.equal(generator_state("cpu"), after):
                set_generator_state("cpu", after)
                raise NotReplayable(ON_THE_DEVICE)
        # Numbers are those that torch_xla gave, for they are what the script goes on with.
        theirs = list(leaves(outputs)) if outputs is not None else []
        mine = list(leaves(twins)) if twins is not None else []
        if [_shape(one) for one in theirs] != [_shape(one) for one in mine]:
            raise NotReplayable(f"{operation} gives other tensors on xla than on the CPU")
        shown = [one if isinstance(one, torch.Tensor) else number for one, number in zip(mine, theirs, strict=True)]
        origin, group = str(operation), position
        whole = self._composed.whole(begun.executed.operation, place.sequence if place.phase == "backward" else None)
        if whole is not None:
            origin, group = str(whole.operation), self._groups.setdefault(whole.number, position)
        compiled = CompiledNode(GRAPH, f"{operation.name()}_{position}", origin, group)
        call = self._log.complete(operation, arguments, keywords, taken, shown, frames, compiled)
        numbers: list[ValueNumber | None] = []
        for one, twin in zip(theirs, mine, strict=True):
            if isinstance(one, torch.Tensor) and one.device.type == "xla":
                overwrites = operation.name() in OVERWRITING and self._twins.number(one) in begun.executed.given()
                number = self._twins.made(one, twin, overwrites=overwrites)
                numbers.append(number)
            else:
                numbers.append(None)
        self._program.ops.append(
            replace(
                begun.executed,
                outputs=tuple(numbers),
                position=position,
                drawn=[one.detach().clone() for one in mine] if call.draw is not None else None,
                unread={at: mine[at].detach().clone() for at in UNREAD.get(operation.name(), ())},
            )
        )

    def _ours(self, value: Any) -> Any:
        """What stands on the CPU for an argument."""
        if isinstance(value, torch.Tensor):
            return self._twins.of(value) if value.device.type == "xla" else value
        return torch.device("cpu") if isinstance(value, torch.device) and value.type in HERE else value

    def _noted(self, value: Any) -> Any:
        """An argument as the program has it: tensors of the device by their numbers, copies of others."""
        if not isinstance(value, torch.Tensor):
            return torch.device("xla") if isinstance(value, torch.device) and value.type in HERE else value
        return Given(self._twins.number(value)) if value.device.type == "xla" else value.detach().clone()

    def _cut(self) -> None:
        """What was pending has been executed."""
        self._values.read()
        self._twins.cut(self._values.numbers)

    @contextmanager
    def _reads(self) -> Iterator[None]:
        """numdrift reads values for itself, which is none of the step's ops."""
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
