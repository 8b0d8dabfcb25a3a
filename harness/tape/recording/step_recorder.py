"""The protocol of step recorders: they record ops when these are called, or when a mode that defers them executes
them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from ...records.values.unfilled_read import UnfilledRead
from ..tape import Tape


class StepRecorder(Protocol):
    """A recorder of one step, from `start` to `stop`.

    An op that cannot be recorded abandons the tape; `reason` says why, and the training continues. Methods with a body
    here are optional.
    """

    reason: str | None

    @property
    def unfilled(self) -> Sequence[UnfilledRead]:
        """The reads of memory that nothing has filled."""
        return ()

    @abstractmethod
    def start(self) -> None: ...

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """Note the values that the step starts from, by name."""
        return

    @abstractmethod
    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note the present content of a value by which the step is compared."""

    @abstractmethod
    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note the arguments of the first root module before its call."""

    @abstractmethod
    def overwritten(self, tensor: torch.Tensor) -> None:
        """Note that values were written to a tensor without an op, in place of those from the script."""

    def over(self) -> None:
        """Note that the step has ended, although its ops may still be executed later."""
        return

    @abstractmethod
    def stop(self) -> None:
        """Stop recording. May be called twice."""

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Abandon the tape, and keep the first reason."""

    def forget_modules(self) -> None:
        """Remove the hooks from the modules' calls."""
        return

    @abstractmethod
    def tape(self) -> Tape:
        """Return the step's tape. Raises NotReplayable if it was abandoned."""

    def kernels(self, tape: Tape) -> Any:
        """Return the object that answers for the tape's kernels, None if ops were executed one by one."""
        return None
