"""Recording a step as a tape, by a dispatch mode that sees every op and changes none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from ..torch_private.dispatching import (
    InterceptedOps,
    is_operation_overload,
    without_dispatch_modes,
    without_function_modes,
)
from .call_log import CallLog, CallValues, NotedCall, raising
from .compiled_graphs import CapturedGraph, CompiledGraph, Unrolled, Unroller
from .op_names import NAMESPACES, PYTHON_GROUP, SHARDED, unreplayed
from .op_places import StepPlaces, owners_of
from .origin import StepFrames, script_frames
from .random_calls import RandomCalls
from .shards import is_sharded
from .step_settings import current_settings, setting_lines
from .tape import Call, NotReplayable, Tape, View, Watched, leaves

OFF_TAPE = ("profiler", "prim")
"""Namespaces of calls that compute nothing and carry handles which nothing could write down."""

NAMES_ONLY = ("aten::set_",)
"""Ops that give a tensor other memory, which the next view of it tells: a data loader's workers send theirs so."""


class TapeRecorder:
    """Records from `start` to `stop`. Whatever it cannot take ends the tape, with the `reason`, and not the training.

    `script` is the file whose lines are noted. With `modules` the modules' calls are followed by hooks. With `values`
    compiled graphs, whose executions are then led to `executed`, are taken apart by what `unroller` makes. More than
    `most` calls are no tape. `raised` is the last op that gave an error, which is not on the tape.
    """

    def __init__(
        self,
        step: int,
        script: str,
        *,
        modules: bool,
        values: CallValues | None = None,
        unroller: Callable[[CallLog, str], Unroller] | None = None,
        most: int | None = None,
    ) -> None:
        self.reason: str | None = None
        self.raised: Call | None = None
        self._step = step
        self._script = script
        self._modules = modules
        self._most = most
        self._process = os.getpid()
        self._watched: list[Watched] = []
        self._given: list[Watched] = []
        self._log = CallLog(values)
        self.unroller = None if unroller is None else unroller(self._log, script)
        self._mode = InterceptedOps(self._around)
        self._places: StepPlaces | None = None
        self._suspended = False
        self._random: RandomCalls | None = None
        self._settings: Mapping[str, Any] = {}
        self._set_at: Mapping[str, str] = {}
        self._frames = StepFrames(script)

    def start(self) -> None:
        if is_group_in_python():  # what it receives would pass for data of the step
            self.give_up(PYTHON_GROUP)
        self._settings, self._set_at = current_settings(), dict(setting_lines.known)
        self._places = StepPlaces(modules=self._modules)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Look at nothing any more. May be called twice."""
        self._mode.__exit__(None, None, None)
        self.forget_modules()

    def forget_modules(self) -> None:
        """Take the hooks out of the modules' calls."""
        if self._places is not None:
            self._places.close()

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note a value that the step is compared by, as it is now."""
        with self._looking():
            if self.reason is None:
                view = self._log.table.view(tensor.detach(), is_input=True)
                value = tensor.detach().to("cpu", copy=True)
                self._watched.append(Watched(len(self._log.calls), name, view, value))

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note what the first root module is about to be called with: plain tensors, as the script has made them."""
        with self._looking():
            for name, tensor in tensors.items():
                if self.reason is None:
                    view = self._log.table.view(tensor.detach(), is_input=True)
                    value = tensor.detach().to("cpu", copy=True)
                    self._given.append(Watched(len(self._log.calls), name, view, value))

    def given(self, tensor: torch.Tensor) -> None:
        """Take note that a tensor holds other values than the script has given it, put in place past every op."""
        with self._looking():
            if self.reason is None:
                self._log.table.renew(tensor.detach())

    def captured(self, graph: CapturedGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Have what was compiled from a captured graph executed as it would be, and note where it lies on the tape."""
        if self._ignores():
            return execute()
        grad = torch.is_grad_enabled()
        with self._looking():
            assert self.unroller is not None
            self.unroller.called(graph, inputs, grad=grad)
        outputs = execute()
        if self.unroller is not None:
            with self._looking():
                self.unroller.returned(outputs)
        return outputs

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Have a compiled graph executed as it would be, and take it apart on the tape."""
        if self._ignores():
            return execute()
        unrolled: Unrolled | None = None
        with self._looking():
            assert self._places is not None and self.unroller is not None
            unrolled = self.unroller.enter(graph, self._places.compiled(), inputs)
        # What is dispatched from here is part of the graph, or of its repetitions with probes.
        before, self._suspended = self._suspended, True
        random = RandomCalls()
        try:
            self._random = random
            outputs = execute()
            self._random = None
            if unrolled is not None:
                unrolled.probe(outputs)
        finally:
            self._suspended, self._random = before, None
        if unrolled is not None:
            with self._looking():
                unrolled.leave(outputs, random)
        return outputs

    def tape(self) -> Tape:
        """What was recorded. Raises NotReplayable with the reason where that is not the whole step."""
        if self.reason is not None:
            raise NotReplayable(self.reason)
        owners = owners_of(self._log.calls, self._watched)
        calls = tuple(
            replace(call, owners=found) if found else call for call, found in zip(self._log.calls, owners, strict=True)
        )
        table = self._log.table
        watched, given = tuple(self._watched), tuple(self._given)
        return Tape(
            self._step,
            table.slots,
            table.inputs,
            calls,
            watched,
            self._settings,
            given=given,
            set_at=self._set_at,
        )

    def view_of(self, tensor: torch.Tensor) -> View | None:
        """What the tape knows a tensor by; None where it has not met the tensor's memory."""
        with self._looking():
            if self.reason is None and self._log.table.slot_of(tensor) is not None:
                return self._log.table.view(tensor.detach(), is_input=False)
        return None

    def alive(self, view: View) -> torch.Tensor | None:
        """What a view holds now; None once nobody but the tape knows its memory."""
        return self._log.table.tensor(view)

    def give_up(self, reason: str) -> None:
        """End the tape; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._watched.clear()
            self._given.clear()
            self._log = CallLog()
            self.unroller = None

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """What happens here is seen by no mode, and no failure leaves it."""
        try:
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                yield
        except NotReplayable as found:
            self.give_up(str(found))
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self.give_up(f"recording an op failed: {type(error).__name__}: {error}")

    def _ignores(self) -> bool:
        # A process forked from the training (a data loader's worker) inherits the mode, but its ops are not the step's.
        ignored = self.reason is not None or self._suspended or os.getpid() != self._process
        if not ignored and not self._log.calls:  # a script may set torch otherwise at the beginning of a step
            self._settings, self._set_at = current_settings(), dict(setting_lines.known)
        return ignored

    def _around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an op executed as it would be, noted before for what it takes and after for what it gave."""
        if self._ignores():
            return operation(*args, **kwargs) if self._random is None else self._random.around(operation, args, kwargs)
        if is_operation_overload(operation):
            if is_off_tape(operation):
                return operation(*args, **kwargs)
            if operation.namespace in NAMESPACES:
                self.give_up(unreplayed(operation.name()))
                return operation(*args, **kwargs)
        taken: NotedCall | None = None
        grad = torch.is_grad_enabled()
        with self._looking():
            assert self._places is not None
            if self._most is not None and len(self._log.calls) >= self._most:
                raise NotReplayable(f"it has more than {self._most:,} ops")
            given = list(leaves([*args, *kwargs.values()]))
            if any(isinstance(one, torch.Tensor) and is_sharded(one) for one in given):
                raise NotReplayable(SHARDED)
            differentiable = any(isinstance(one, torch.Tensor) and one.requires_grad for one in given)
            place = self._places.here(grad=grad, differentiable=differentiable)
            taken = self._log.take(operation, args, kwargs, place, grad=grad)
        # The op itself runs outside of `_looking`, under the modes of the script, and what it raises is the script's.
        try:
            outputs = operation(*args, **kwargs)
        except Exception:
            if taken is not None:
                self.raised = raising(operation, taken, script_frames(self._script))
            raise
        if taken is not None:
            with self._looking():
                frames = self._frames.here(place.phase, place.sequence)
                self._log.complete(operation, args, kwargs, taken, outputs, frames)
        return outputs


def is_off_tape(operation: Any) -> bool:
    """Whether a call of the dispatcher's computes nothing that a tape would have to hold."""
    return operation.namespace in OFF_TAPE or operation.name().partition(".")[0] in NAMES_ONLY


def is_group_in_python() -> bool:
    """Whether the process group of the script is of a class that is written in Python."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    return type(distributed.group.WORLD) is not distributed.ProcessGroup
