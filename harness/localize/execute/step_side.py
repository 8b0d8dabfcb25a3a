"""One side of a step that is localized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...tape.tape import Tape
from .verification import Digests
from .worker_calls import WorkerCalls


@dataclass(frozen=True, slots=True, eq=False)
class StepSide:
    """One side of a step.

    tape: the side's tape.
    label: the side's name in texts.
    digests: returns the worker's digests of the calls' real results as soon as they exist, or raises the worker's
        error.
    calls: executes calls in the worker, if there is one.
    notes: the parts of the step that the worker could not observe.
    spec: the specification of the side's mode.
    """

    tape: Tape
    label: str
    digests: Callable[[], Digests] | None = None
    calls: WorkerCalls | None = None
    notes: Sequence[str] = ()
    spec: str = ""
