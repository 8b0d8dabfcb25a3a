"""The common part of the recorders of steps whose ops have no value when they are called: observing and stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from ..tape.step_recorder import StepRecorder
from ..tape.tape import NotReplayable
from ..torch_private.dispatching import bare_execution, without_dispatch_modes, without_function_modes

Found = TypeVar("Found")


class HeldBackStep(StepRecorder):
    """Observes while it is open. An op that cannot be recorded ends the tape (see `reason`); the training continues."""

    unroller = None

    def __init__(self) -> None:
        self.reason: str | None = None
        self._open = self._is_over = False
        self._undo: list[Callable[[], Any]] = []

    def stop(self) -> None:
        """Stop observing. May be called twice."""
        self._open = False
        undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()

    def _look(self, look: Callable[[], Found]) -> Found | None:
        """Return what `look` finds, None after the end. What it executes is not observed, and no failure leaves it."""
        if not self._open or self.reason is not None:
            return None
        self._open = False
        try:
            with without_dispatch_modes(), without_function_modes():
                return look()
        except NotReplayable as refusal:
            self.give_up(str(refusal))
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self.give_up(f"recording an op failed: {type(error).__name__}: {error}")
        finally:
            self._open = True
        return None


@contextmanager
def apart() -> Iterator[None]:
    """Execute below autograd, without a graph that grows."""
    with torch.no_grad(), bare_execution():
        yield
