"""The recorder of a step's tape: a dispatch mode that sees every op and changes none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ...records.run.step_files import LEAVES_OUT, OF_SCRIPT
from ...torch_private.dispatching import registered_operation, without_dispatch_modes, without_function_modes
from ...torch_private.operators import written_values
from ..large_values import LargeValues
from ..op_names import NAMESPACES, PYTHON_GROUP, SHARDED, unreplayed
from ..op_places import StepPlaces, owners_of
from ..origin import StepFrames, script_frames
from ..shards import is_sharded
from ..step_settings import current_settings, setting_lines
from ..tape import Call, NotReplayable, Tape, View, Watched, leaves
from .call_log import CallLog, NotedCall, raising
from .followed_calls import FollowedOps, OpCall
from .sparse_ops import SparseOps
from .step_recorder import StepRecorder

NAMES_ONLY = ("aten::set_",)
"""Ops that only make a tensor refer to different memory, such as memory that a data loader's worker has sent.

The tape does not need these ops: the tensor's next view refers to the new memory."""


class TapeRecorder(StepRecorder):
    """A recorder of the ops from `start` to `stop`.

    If an op cannot be recorded, or the step has more than `most` calls, the tape is abandoned (see `reason`). The
    training continues.

    script: the file whose lines are recorded
    modules: whether hooks follow the calls of modules
    large: keeps the values of the tape, in memory if it is None
    raised: the last call of an op that raised an error; it is not on the tape
    """

    def __init__(
        self,
        step: int,
        script: str,
        *,
        modules: bool,
        most: int | None = None,
        large: LargeValues | None = None,
    ) -> None:
        self.reason: str | None = None
        self.raised: Call | None = None
        self._step = step
        self._script = script
        self._modules = modules
        self._most = most
        self._process = os.getpid()
        self._watched: list[Watched] = []
        self._batch: list[Watched] = []
        self._large = large or LargeValues()
        self._log = CallLog(large=self._large)
        self._mode = FollowedOps(self._begins, self._ended, self._failed)  # type: ignore[misc]  # two kinds of notes
        self._places: StepPlaces | None = None
        self._settings: Mapping[str, Any] = {}
        self._set_at: Mapping[str, str] = {}
        self._frames = StepFrames(script)
        self._sparse = SparseOps()
        self._computed: set[int] = set()  # the slots that the first `_looked_at` calls have made or written
        self._looked_at = 0

    def start(self) -> None:
        if is_group_in_python():  # the tensors that the group receives would look like the step's data
            self.give_up(PYTHON_GROUP)
        self._settings, self._set_at = current_settings(), dict(setting_lines.lines)
        self._places = StepPlaces(modules=self._modules)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop recording. May be called twice."""
        self._mode.__exit__(None, None, None)
        self.forget_modules()

    def forget_modules(self) -> None:
        """Remove the hooks from the modules' calls."""
        if self._places is not None:
            self._places.close()

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note the present content of a value that is compared between executions of the step.

        A value of the script's own that no op of the step computed, such as a time, is not noted.
        """
        if not name.startswith(OF_SCRIPT) or self._is_computed(tensor):
            self._note(self._watched, {name: tensor})

    def _is_computed(self, tensor: torch.Tensor) -> bool:
        """Check whether a call on the tape has made a tensor or written to it."""
        with self._looking():
            calls = self._log.calls
            for call in calls[self._looked_at :]:
                results = (output for output, fresh in zip(call.outputs, call.fresh, strict=True) if fresh)
                written = written_values(registered_operation(call.op), call.arguments, call.keywords)
                self._computed |= {view.slot for view in (*results, *written) if isinstance(view, View)}
            self._looked_at = len(calls)
        view = self.view_of(tensor)
        return view is not None and view.slot in self._computed

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note the arguments of the first root module before its call: plain tensors, as the script created them."""
        self._note(self._batch, tensors)

    def _note(self, values: list[Watched], tensors: Mapping[str, torch.Tensor]) -> None:
        with self._looking():
            for name, tensor in tensors.items():
                if self.reason is None and not self._sparse.concerns([tensor]):
                    view = self._log.table.view(tensor.detach(), is_input=True)
                    values.append(Watched(len(self._log.calls), name, view, self._large.copy(tensor)))

    def overwritten(self, tensor: torch.Tensor) -> None:
        """Note that the values of a tensor of the script were overwritten without an op."""
        with self._looking():
            if self.reason is None:
                self._log.table.renew(tensor.detach())

    def tape(self) -> Tape:
        """Return the recorded tape. Raises NotReplayable with the reason if the tape was abandoned."""
        if self.reason is not None:
            raise NotReplayable(self.reason)
        owners = owners_of(self._log.calls, self._watched)
        calls = tuple(
            replace(call, owners=parameters) if parameters else call
            for call, parameters in zip(self._log.calls, owners, strict=True)
        )
        table = self._log.table
        watched, batch = tuple(self._watched), tuple(self._batch)
        return Tape(
            self._step,
            table.slots,
            table.inputs,
            calls,
            watched,
            self._settings,
            batch=batch,
            set_at=self._set_at,
        )

    @property
    def left_out(self) -> str:
        """A sentence about the part of the step that the tape leaves out; "" if it has the whole step."""
        count = self._sparse.count
        ops = "1 op that computes" if count == 1 else f"{count} ops that compute"
        return f"{LEAVES_OUT} {ops} with sparse tensors, and what follows from them" if count else ""

    def view_of(self, tensor: torch.Tensor) -> View | None:
        """Return the view that identifies a tensor on the tape, None if its memory has no slot."""
        with self._looking():
            if self.reason is None and tensor.layout == torch.strided and self._log.table.slot_of(tensor) is not None:
                return self._log.table.view(tensor.detach(), is_input=False)
        return None

    def alive(self, view: View) -> torch.Tensor | None:
        """Return the tensor of a view with its present values, None if only the tape still refers to its memory."""
        return self._log.table.tensor(view)

    def give_up(self, reason: str) -> None:
        """Abandon the tape for a reason, unless it was abandoned before."""
        if self.reason is None:
            self.reason = reason
            self._watched.clear()
            self._batch.clear()
            self._log = CallLog()

    def _looking(self) -> _Looking:
        """Hide the ops of the context from all modes. Suppress an exception that it raises, and abandon the tape."""
        return _Looking(self)

    def _ignores(self) -> bool:
        # A process that is forked from the training (a data loader's worker) inherits the mode, but its ops are not the
        # step's.
        ignored = self.reason is not None or os.getpid() != self._process
        if not ignored and not self._log.calls:  # a script may change settings at the beginning of a step
            self._settings, self._set_at = current_settings(), dict(setting_lines.lines)
        return ignored

    def _begins(self, call: OpCall) -> NotedCall | OpCall | None:
        """Note the arguments of an op that is about to run. An op that the tape leaves out is its own note."""
        if self._ignores():
            return None
        if call.is_overload:
            if is_off_tape(call.operation):
                return None
            if call.operation.namespace in NAMESPACES:
                self.give_up(unreplayed(call.operation.name()))
                return None
        with self._looking():
            assert self._places is not None
            if self._most is not None and len(self._log.calls) >= self._most:
                raise NotReplayable(f"it has more than {self._most:,} ops")
            if any(map(is_sharded, call.tensors)):
                raise NotReplayable(SHARDED)
            place = self._places.here(grad=call.grad, differentiable=call.is_differentiable)
            if self._sparse.concerns(call.tensors):
                return call
            return self._log.take(call, place)
        return None

    def _ended(self, noted: NotedCall | OpCall, outputs: Any) -> None:
        with self._looking():
            returned = [value for value in leaves(outputs) if isinstance(value, torch.Tensor)]
            if isinstance(noted, OpCall) or self._sparse.concerns(returned):
                self._sparse.leave_out(noted if isinstance(noted, OpCall) else noted.call, outputs)
                return
            self._log.complete(noted, outputs, self._frames.here(noted.place.phase, noted.place.sequence))

    def _failed(self, noted: NotedCall | OpCall, error: BaseException) -> None:
        if isinstance(error, Exception) and isinstance(noted, NotedCall):
            self.raised = raising(noted, script_frames(self._script))


class _Looking:
    """The context `TapeRecorder._looking`. It is no generator, because it is entered twice for each call of a step."""

    __slots__ = ("_grad", "_guards", "_recorder")

    def __init__(self, recorder: TapeRecorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._guards = without_dispatch_modes(), without_function_modes()
        for guard in self._guards:
            guard.__enter__()
        self._grad = torch.is_grad_enabled()
        torch.set_grad_enabled(False)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        torch.set_grad_enabled(self._grad)
        for guard in reversed(self._guards):
            guard.__exit__(None, None, None)
        if isinstance(error, NotReplayable):
            self._recorder.give_up(str(error))
        elif isinstance(error, Exception):  # the training goes on whatever fails here
            self._recorder.give_up(f"recording an op failed: {type(error).__name__}: {error}")
        return error is None or isinstance(error, Exception)


def is_off_tape(operation: Any) -> bool:
    """Return whether the calls of an op compute nothing that a tape needs."""
    return operation.name().partition(".")[0] in NAMES_ONLY


def is_group_in_python() -> bool:
    """Return whether the class of the script's process group is written in Python."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    return type(distributed.group.WORLD) is not distributed.ProcessGroup
