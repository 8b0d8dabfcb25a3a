"""The base of the recorders of steps whose ops have no value yet when they are called: observing and stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from ..tape.recording.step_recorder import StepRecorder
from ..tape.tape import NotReplayable
from ..torch_private.dispatching import bare_execution, without_dispatch_modes, without_function_modes

Found = TypeVar("Found")


class HeldBackStep(StepRecorder):
    """A step recorder that observes until `stop`.

    An op that cannot be recorded abandons the tape (see `reason`); the training continues.
    """

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
        """Return the result of `look`, None once recording has ended.

        Ops that `look` executes are not observed. A failure in it abandons the tape and is not raised.
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
