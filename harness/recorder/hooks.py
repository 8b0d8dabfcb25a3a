"""Where the recorder looks into a training process that knows nothing of it.

Three places are hooked: the outermost module calls (until the models are known), `backward`, and the
optimizers' steps. Nothing stays hooked inside a module's call, so compilers trace what they always trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Observer(Protocol):
    """What the hooks report to."""

    def module_called(self, module: torch.nn.Module) -> None:
        """An outermost module is about to be called."""

    def backward_started(self, losses: list[torch.Tensor]) -> None:
        """A backward from these tensors is about to run."""

    def backward_ended(self) -> None:
        """That backward has run."""

    def step_ended(self, optimizer: Optimizer) -> None:
        """The outermost `step()` of an optimizer has returned."""


class ModuleCalls:
    """Reports outermost module calls while it is open.

    `torch.nn.Module.__call__` is replaced between outermost calls only and put back during each, so neither
    inner modules nor a compiler ever see the replacement.
    """

    def __init__(self, called: Callable[[torch.nn.Module], None]) -> None:
        self._original = torch.nn.Module.__call__
        self._called = called
        self._open = False
        self._replacement = self._make()

    def _make(self) -> Callable[..., Any]:
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._put(self._original)
            try:
                self._called(module)
                return self._original(module, *args, **kwargs)
            finally:
                if self._open:
                    self._put(self._replacement)

        return call

    def open(self) -> None:
        if not self._open:
            self._open = True
            self._put(self._replacement)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._put(self._original)

    def _put(self, function: Callable[..., Any]) -> None:
        torch.nn.Module.__call__ = function  # type: ignore[method-assign]


class StepNesting:
    """Finds the outermost of nested optimizer steps (SAM's around its base optimizer's)."""

    def __init__(self) -> None:
        self._running: list[int] = []

    def enter(self, optimizer: Optimizer) -> None:
        # An optimizer never runs within itself: one that is on the stack already was left by an exception.
        if id(optimizer) in self._running:
            del self._running[self._running.index(id(optimizer)) :]
        self._running.append(id(optimizer))

    def leave(self, optimizer: Optimizer) -> bool:
        """Whether the step that ends is an outermost one."""
        if id(optimizer) not in self._running:
            return False
        del self._running[self._running.index(id(optimizer)) :]
        return not self._running

    def forget(self) -> None:
        """An optimizer is made: whatever is still running was left by an exception."""
        self._running.clear()


class Hooks:
    """Installs every hook; `remove` takes them out again."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.calls = ModuleCalls(observer.module_called)
        self._nesting = StepNesting()
        self._in_backward = False
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        self.calls.open()
        self._undo += [
            self.calls.close,
            register_optimizer_step_pre_hook(lambda optimizer, *_: self._nesting.enter(optimizer)).remove,
            register_optimizer_step_post_hook(self._step_ended).remove,
        ]
        self._wrap_backward()
        self._wrap_optimizer_creation()

    def remove(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _step_ended(self, optimizer: Optimizer, *_: Any) -> None:
        if self._nesting.leave(optimizer):
            self._observer.step_ended(optimizer)

    def _wrap_backward(self) -> None:
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # A backward inside a backward (activation checkpointing) starts from no loss of the script's.
            outermost, self._in_backward = not self._in_backward, True
            if outermost:
                self._observer.backward_started(_tensors_in(tensors))
            try:
                original(tensors, *args, **kwargs)
            finally:
                self._in_backward = not outermost
            if outermost:
                self._observer.backward_ended()

        torch.autograd.backward = backward
        self._undo.append(lambda: setattr(torch.autograd, "backward", original))

    def _wrap_optimizer_creation(self) -> None:
        original = Optimizer.__init__

        @functools.wraps(original)
        def create(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            self.calls.open()
            self._nesting.forget()
            original(optimizer, *args, **kwargs)

        Optimizer.__init__ = create  # type: ignore[method-assign, assignment]
        self._undo.append(lambda: setattr(Optimizer, "__init__", original))


def _tensors_in(tensors: Any) -> list[torch.Tensor]:
    listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    return [tensor for tensor in listed if isinstance(tensor, torch.Tensor)]
