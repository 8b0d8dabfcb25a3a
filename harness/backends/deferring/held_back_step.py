"""The base class of the step recorders for modes that defer ops: an op has no value yet when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ...tape.op_places import owners_of, with_owners_of_readers
from ...tape.recording.call_log import CallLog
from ...tape.recording.step_recorder import StepRecorder
from ...tape.tape import NotReplayable, Tape, Watched
from ...torch_private.dispatching import bare_execution, without_dispatch_modes, without_function_modes

Found = TypeVar("Found")


class HeldBackStep(StepRecorder):
    """A recorder of a step on `device`, from `start` to `stop`.

    `tape.recording.tape_recorder` is its counterpart for modes whose ops have values at once. If an op cannot be
    recorded, the tape is abandoned (see `reason`), and the training continues.
    """

    device: str

    def __init__(self, step: int, log: CallLog) -> None:
        self.reason: str | None = None
        self._open = self._is_over = False
        self._undo: list[Callable[[], Any]] = []
        self._step = step
        self._log = log
        self._seen: list[Watched] = []
        self._batch: list[Watched] = []
        self._starts: list[Watched] = []
        self._settings: Mapping[str, Any] = {}
        self._set_at: Mapping[str, str] = {}

    def stop(self) -> None:
        """Stop observing. May be called twice."""
        self._open = False
        undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """Record the values that the step starts from, by name."""

        def look() -> None:
            for name, tensor in values.items():
                if tensor.device.type == self.device and self._has_value(tensor):
                    taped, value = self._represented(tensor)
                    view = self._log.table.view(taped, is_input=True)
                    self._starts.append(Watched(0, name, view, value))  # only its view is used

        self._look(look)

    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record the tensors that the first root module is about to be called with, if their values are available."""

        def look() -> None:
            for name, tensor in tensors.items():
                if tensor.device.type != self.device:
                    self._batch.append(self._watched_value(name, tensor, tensor))
                elif self._is_represented(tensor):
                    self._batch.append(self._watched_value(name, *self._represented(tensor)))

        self._look(look)

    def overwritten(self, tensor: torch.Tensor) -> None:
        """Do nothing. The tensor is an input of the ops that are executed later, and is recorded then."""

    def _has_value(self, tensor: torch.Tensor) -> bool:
        """Return whether the device has computed the value of a tensor."""
        raise NotImplementedError

    def _is_represented(self, tensor: torch.Tensor) -> bool:
        """Return whether the tape can represent a tensor on the device."""
        return self._has_value(tensor)

    def _represented(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tensor that replaces a device tensor on the tape, and the device tensor's value."""
        raise NotImplementedError

    def _watched_value(self, name: str, taped: torch.Tensor, value: torch.Tensor) -> Watched:
        """Return the record of a value with a copy of its current content. `taped` replaces the value on the tape."""
        view = self._log.table.view(taped.detach(), is_input=True)
        return Watched(len(self._log.calls), name, view, value.detach().clone())

    def _tape_with(self, watched: Sequence[Watched]) -> Tape:
        """Return the recorded step with these watched values."""
        calls, table = self._log.calls, self._log.table
        owners = with_owners_of_readers(calls, owners_of(calls, [*watched, *self._starts]))
        owned_calls = tuple(
            replace(call, owners=names) if names else call for call, names in zip(calls, owners, strict=True)
        )
        starts, batch = {start.name: start.view for start in self._starts}, tuple(self._batch)
        return Tape(
            self._step,
            table.slots,
            table.inputs,
            owned_calls,
            tuple(watched),
            self._settings,
            starts,
            batch,
            self._set_at,
        )

    def _look(self, look: Callable[[], Found]) -> Found | None:
        """Return the result of `look`, None once recording has ended.

        Ops that `look` executes are not observed. If `look` fails, the tape is abandoned and nothing is raised.
        """
        if not self._open or self.reason is not None:
            return None
        self._open = False
        try:
            with without_dispatch_modes(), without_function_modes():
                return look()
        except NotReplayable as refusal:
            self.give_up(str(refusal))
        except Exception as error:  # noqa: BLE001, the training continues whatever fails here
            self.give_up(f"recording an op failed: {type(error).__name__}: {error}")
        finally:
            self._open = True
        return None


@contextmanager
def apart() -> Iterator[None]:
    """Execute below autograd, so that no autograd graph is built."""
    with torch.no_grad(), bare_execution():
        yield
