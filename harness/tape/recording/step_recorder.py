"""The protocol of step recorders. They record an op when it is called, or when a mode that defers ops executes it.

A mode that has special recorders creates them from a request (`Mode.step_recorders`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ...records.values.unfilled_read import UnfilledRead
from ..tape import Tape

CompilingAgain = Callable[[int, bool], AbstractContextManager[None]]
"""Returns a context for compiling a graph with probes; called with the graph's number and whether it is a backward."""


class StepRecorder(Protocol):
    """A recorder of one step, from `start` to `stop`.

    If an op cannot be recorded, the tape is abandoned: `reason` says why, and the training continues. The methods that
    this class implements are optional.
    """

    reason: str | None

    @property
    def unfilled(self) -> Sequence[UnfilledRead]:
        """The reads of uninitialized memory."""
        return ()

    @property
    def put_off(self) -> bool:
        """True if the recorder was abandoned because the tape would take too long."""
        return False

    @property
    def left_out(self) -> str:
        """A sentence about the part of the step that the tape leaves out; "" if it has the whole step."""
        return ""

    @abstractmethod
    def start(self) -> None: ...

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """Note the values that the step starts from, by name."""
        return

    @abstractmethod
    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note the present content of a value that is compared between executions of the step."""

    @abstractmethod
    def called_with(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note the arguments of the first root module before its call."""

    @abstractmethod
    def overwritten(self, tensor: torch.Tensor) -> None:
        """Note that the values of a tensor of the script were overwritten without an op."""

    def over(self) -> None:
        """Note that the step has ended, although its ops may still be executed later."""
        return

    @abstractmethod
    def stop(self) -> None:
        """Stop recording. May be called twice."""

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Abandon the tape for a reason, unless it was abandoned before."""

    def forget_modules(self) -> None:
        """Remove the hooks from the modules' calls."""
        return

    @abstractmethod
    def tape(self) -> Tape:
        """Return the step's tape. Raises NotReplayable if it was abandoned."""

    def kernels(self, tape: Tape) -> Any:
        """Return the kernels that executed the tape's calls, None if ops were executed one by one."""
        return None


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """A request for the recorders of a training run's steps.

    script: the path of the script
    value_bytes: the largest number of bytes of values that may be kept beside the tape of one step
    folder: where large values of a tape may lie while it is recorded
    compiling_again: returns a context for compiling a graph again to look inside it
    quick: abandon a step if it takes long to read the values in its compiled graphs
    """

    script: str
    value_bytes: int
    folder: Path
    compiling_again: CompilingAgain
    quick: bool = False


class StepRecorders:
    """The recorders of a training run's steps. A subclass may observe the run from `install` to `remove`.

    of_step: returns a new recorder for a step
    """

    def __init__(self, of_step: Callable[[int], StepRecorder]) -> None:
        self.of_step = of_step

    def install(self) -> None:
        """Begin to observe before the script's first line. Raises NotAvailable, and then leaves no hook installed."""

    def remove(self) -> None:
        """Remove every hook."""
