"""What the recorders of steps share whose ops have no value when they are called: how they look, and how they stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from ..tape.tape import NotReplayable
from ..torch_private.dispatching import bare_execution, without_dispatch_modes, without_function_modes

Found = TypeVar("Found")


class HeldBackStep:
    """Looks while it is open. Whatever cannot be taken ends the tape, with the `reason`, and not the training."""

    unroller = None

    def __init__(self) -> None:
        self.reason: str | None = None
        self._open = self._is_over = False
        self._undo: list[Callable[[], Any]] = []

    def stop(self) -> None:
        """Look at nothing any more. May be called twice."""
        self._open = False
        undo, self._undo = self._undo, []
        for one in reversed(undo):
            one()

    def give_up(self, reason: str) -> None:
        """End the tape; the first reason stays."""
        raise NotImplementedError

    def _look(self, look: Callable[[], Found]) -> Found | None:
        """What `look` finds; nothing is seen of what it executes, and no failure leaves it. None once nobody looks."""
        if not self._open or self.reason is not None:
            return None
        self._open = False
        try:
            with without_dispatch_modes(), without_function_modes():
                return look()
        except NotReplayable as found:
            self.give_up(str(found))
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
