"""The recorder's hooks in a training process. With them, the script does not have to call numdrift.

The hooks are on the outermost module calls, on `backward` and its replacements (`torch.autograd.grad`,
`torch.func.grad`), on the optimizers' steps, and on the gradient scaler, which acts between a loss and its backward.
If anything is compiled, no hook is active inside a module's call, so compilers trace the same code as in a bare run.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ..torch_private.patches import Patches
from ..torch_private.untraced import forget_known_functions, skip_frame, transformation_level, untraced
from .module_calls import ModuleCalls
from .script_compiling import ScriptCompiles
from .script_losses import Found, FunctionObserver, report_gradient_functions, tensors_in


class TrainingListener(Protocol):
    """The receiver of the hooks' reports."""

    def module_called(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Observe that an outermost module is about to be called with these arguments."""

    def module_returned(self, module: torch.nn.Module, outputs: Any) -> None:
        """Observe that an outermost module has returned these outputs."""

    def module_reached(self, module: torch.nn.Module) -> None:
        """Observe that a compiled function is about to call a module. The module's calls and arguments are not seen."""

    def backward_started(self, losses: list[torch.Tensor], found: Found) -> None:
        """Observe that a backward from these tensors, or a `torch.autograd.grad` in place of one, is about to run."""

    def backward_ended(self) -> None:
        """Observe that the backward has run."""

    def step_skipped(self, optimizer: Optimizer) -> None:
        """Observe that a gradient scaler skipped an optimizer's step."""

    def step_started(self, optimizer: Optimizer) -> None:
        """Observe that the outermost `step()` of an optimizer is about to run."""

    def step_ended(self, optimizer: Optimizer) -> None:
        """Observe that the outermost `step()` of an optimizer has returned."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Observe that an optimizer has its parameter groups. A wrapper around the optimizer may not have them yet."""


class GradientObserver(FunctionObserver, Protocol):
    """An observer of gradients that no `backward()` computes, and of scaled losses."""

    def replaces_backward(self, outputs: Any, inputs: Any, arguments: Mapping[str, Any]) -> bool:
        """Return whether a `torch.autograd.grad` outside torch.func computes the training's gradients."""

    def gradients_taken(self, outputs: Any, inputs: Any, results: Sequence[Any]) -> None:
        """Observe the results of `torch.autograd.grad`."""

    def loss_scaled(self, losses: Any, results: Any) -> None:
        """Observe that a gradient scaler computed `results` from `losses`."""


FURTHER_ARGUMENTS = ("grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused")
"""The positional parameters of `torch.autograd.grad` that follow `outputs` and `inputs`."""


class StepNesting:
    """Finds the outermost of nested optimizer steps. SAM's step, for example, calls the step of its base optimizer."""

    def __init__(self) -> None:
        self._running: list[int] = []

    def enter(self, optimizer: Optimizer) -> bool:
        """Return whether the step that begins is an outermost one."""
        # A step never runs within a step of the same optimizer. So if the optimizer is on the stack, an exception has
        # ended its step.
        if id(optimizer) in self._running:
            del self._running[self._running.index(id(optimizer)) :]
        self._running.append(id(optimizer))
        return len(self._running) == 1

    def leave(self, optimizer: Optimizer) -> bool:
        """Return whether the step that ends is an outermost one."""
        if id(optimizer) not in self._running:
            return False
        del self._running[self._running.index(id(optimizer)) :]
        return not self._running

    def forget(self) -> None:
        """Clear the stack. Called when an optimizer is created: only exceptions can have left entries on the stack."""
        self._running.clear()


class Hooks:
    """Installs every hook; `remove` uninstalls them.

    compiling: whether anything may be compiled while the hooks are installed
    """

    def __init__(
        self,
        observer: TrainingListener,
        gradients: GradientObserver,
        compiles: ScriptCompiles,
        *,
        compiling: bool = True,
    ) -> None:
        self._observer = observer
        self._compiles = compiles
        self._gradients = gradients
        self.calls = ModuleCalls(observer.module_called, observer.module_returned, stays=not compiling)
        self._nesting = StepNesting()
        self._in_backward = False
        self._stepped_in_backward: Optimizer | None = None
        self._ended_steps = 0
        self._patches = Patches("the recording's hooks")

    def install(self) -> None:
        with self._patches as patches:
            # This only claims `__call__`, which ModuleCalls replaces and restores.
            patches.claim(torch.nn.Module, "__call__")
            self.calls.open()
            patches.also(self.calls.close)
            patches.also(register_optimizer_step_pre_hook(untraced(self._step_started)).remove)
            patches.also(register_optimizer_step_post_hook(untraced(self._step_ended)).remove)
            self._wrap_backward()
            self._wrap_gradients()
            self._wrap_scaler()
            self._wrap_optimizer_creation()
            patches.also(self._compiles.install(self.calls, self._observer.module_reached))

    def remove(self) -> None:
        self._patches.undo()

    def _step_started(self, optimizer: Optimizer, *_: Any) -> None:
        if self._nesting.enter(optimizer):
            self._observer.step_started(optimizer)

    def _step_ended(self, optimizer: Optimizer, *_: Any) -> None:
        if not self._nesting.leave(optimizer):
            return
        if self._in_backward:  # the script has one optimizer per parameter, called by a hook on the gradient
            self._stepped_in_backward = optimizer
        else:
            self._ended_steps += 1
            self._observer.step_ended(optimizer)

    def _wrap_backward(self) -> None:
        original = torch.autograd.backward

        def end() -> None:
            self._observer.backward_ended()
            # If optimizers stepped within the backward, the backward's end is the end of a single step.
            optimizer, self._stepped_in_backward = self._stepped_in_backward, None
            if optimizer is not None:
                self._ended_steps += 1
                self._observer.step_ended(optimizer)

        started, ended = untraced(self._observer.backward_started), untraced(end)

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # A backward inside a backward (activation checkpointing) does not start from a loss of the script.
            outermost, self._in_backward = not self._in_backward, True
            if outermost:
                started(tensors_in(tensors), "backward")
            try:
                original(tensors, *args, **kwargs)
            finally:
                self._in_backward = not outermost
            if outermost:
                ended()

        self._backward = backward
        self._patches.replace(torch.autograd, "backward", backward)

    def _wrap_gradients(self) -> None:
        original = torch.autograd.grad

        @functools.wraps(original)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._in_backward:
                return original(outputs, inputs, *args, **kwargs)
            arguments = dict(zip(FURTHER_ARGUMENTS, args, strict=False)) | kwargs
            if transformation_level():
                results = original(outputs, inputs, *args, **kwargs)
            elif self._gradients.replaces_backward(outputs, inputs, arguments):
                self._in_backward = True
                try:
                    self._observer.backward_started(tensors_in(outputs), "gradient")
                    results = original(outputs, inputs, **arguments)
                finally:
                    self._in_backward = False
                self._observer.backward_ended()
            else:  # an ordinary op of the training, for example in a gradient penalty
                return original(outputs, inputs, *args, **kwargs)
            self._gradients.gradients_taken(outputs, inputs, results)
            return results

        self._patches.also(forget_known_functions)  # executed after the patch below has been undone
        self._patches.replace(torch.autograd, "grad", grad)
        self._patches.also(report_gradient_functions(self._gradients))

    def _wrap_scaler(self) -> None:
        scaler = torch.amp.GradScaler
        scale, step = scaler.scale, scaler.step

        @functools.wraps(scale)
        def scale_(self_: Any, outputs: Any) -> Any:
            results = scale(self_, outputs)
            self._gradients.loss_scaled(outputs, results)
            return results

        @functools.wraps(step)
        def step_(self_: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            # If a gradient has overflowed, a scaler skips the step without reporting this.
            before = self._ended_steps
            result = step(self_, optimizer, *args, **kwargs)
            if self._ended_steps == before:
                self._observer.step_skipped(optimizer)
            return result

        self._patches.replace(scaler, "scale", scale_)
        self._patches.replace(scaler, "step", step_)

    def _wrap_optimizer_creation(self) -> None:
        original = Optimizer.__init__

        @functools.wraps(original)
        def create(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            self.calls.open()
            self._nesting.forget()
            original(optimizer, *args, **kwargs)
            skip_frame(self._backward)  # possible from now on: the creation of an optimizer has loaded dynamo
            self._observer.optimizer_made(optimizer)

        self._patches.replace(Optimizer, "__init__", create)
