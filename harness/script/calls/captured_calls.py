"""The calls of what a script compiles, captured while the script runs eagerly.

Nothing is compiled while the script runs, so the inputs of its calls are the same in every mode. The calls are made
later, in the mode, each with the inputs, the state and the settings that it had in the script.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ...tape.origin import script_line, short_place
from ...torch_private.patches import Patches
from ..module_calls import ModuleCalls
from .call_copies import copied
from .planned_call import PlannedCall, named_inputs

MOST = 16
"""The largest number of calls that are captured of a script."""


class CallCapture:
    """Captures the outermost calls of compiled functions and modules; of all modules if the script compiles nothing.

    compiled: the calls of what the script compiles
    of_modules: the outermost calls of other modules
    further: the number of calls after the first MOST
    trains: whether the script has used an optimizer
    """

    def __init__(self, script: str) -> None:
        self.compiled: list[PlannedCall] = []
        self.of_modules: list[PlannedCall] = []
        self.further = 0
        self.trains = False
        self._script = script
        self._open = False
        self._depth = 0
        self._arguments: dict[int, Mapping[str, Any]] = {}
        self._in_place: list[torch.nn.Module] = []  # kept alive, so that no other object gets the identity of one

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Replace `torch.compile` and `Module.compile`, and capture calls, within the context."""
        modules = ModuleCalls(self._module_called)
        with Patches("the capture of calls") as patches:
            patches.wrap(torch, "compile", lambda before: self._compile)
            patches.replace(torch.nn.Module, "compile", self._compile_in_place())
            patches.wrap(torch.optim.Optimizer, "__init__", self._optimizer)
            patches.also(modules.close)
            modules.open()
            self._open = True
            try:
                yield
            finally:
                self._open = False
                patches.undo()

    def compiled_with(self, function: Any) -> Mapping[str, Any]:
        """Return the arguments with which the script compiled a function or module."""
        return self._arguments.get(id(function), {})

    def _compile(self, model: Any = None, **kwargs: Any) -> Any:
        """Act as `torch.compile` for the script: return something that runs eagerly and captures its calls."""
        if model is None:
            return functools.partial(self._compile, **kwargs)
        if kwargs.get("disable"):
            return model
        self._arguments[id(model)] = kwargs
        if isinstance(model, torch.nn.Module):
            return CapturedModule(model, self)

        @functools.wraps(model)
        def call(*args: Any, **keywords: Any) -> Any:
            if torch.compiler.is_compiling() or not self._open:
                return model(*args, **keywords)
            with self.within(model, args, keywords):
                return model(*args, **keywords)

        return call

    def _compile_in_place(self) -> Callable[..., None]:
        def compile_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            if not kwargs.get("disable"):
                self._arguments[id(module)] = kwargs
                self._in_place.append(module)

        return compile_module

    def _optimizer(self, before: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(before)
        def create(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.trains = True
            before(optimizer, *args, **kwargs)

        return create

    def _module_called(self, module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if self._open and not self._depth and not isinstance(module, CapturedModule):
            is_compiled = any(module is compiled for compiled in self._in_place)
            self._add(self.compiled if is_compiled else self.of_modules, module, args, kwargs)

    @contextmanager
    def within(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Iterator[None]:
        """Capture a call that begins, unless it is within another one."""
        if not self._depth:
            self._add(self.compiled, function, args, kwargs)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _add(
        self, calls: list[PlannedCall], function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> None:
        if len(calls) == MOST:
            self.further += calls is self.compiled
            return
        arguments, keywords = copied((tuple(args), dict(kwargs)))
        inputs = named_inputs(function, tuple(args), kwargs)
        place = short_place(script_line(self._script) or f"call {len(calls)}")
        earlier = sum(call.label.partition(" (")[0] == place for call in calls)
        calls.append(
            PlannedCall(
                f"{place} (call {earlier + 1})" if earlier else place,
                function,
                arguments,
                keywords,
                self.compiled_with(function),
                seed=torch.initial_seed() % 2**32,
                grad=torch.is_grad_enabled() and not torch.is_inference_mode_enabled(),
                under=_contexts(),
                computed=frozenset(name for name, tensor in inputs if tensor.grad_fn is not None),
            )
        )


class CapturedModule(torch.nn.Module):
    """A compiled module of the script: it has the attributes of the module, runs eagerly, and captures its calls."""

    def __init__(self, module: torch.nn.Module, captured: CallCapture) -> None:
        super().__init__()
        self._orig_mod = module
        object.__setattr__(self, "_captured", captured)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self._captured.within(self._orig_mod, args, kwargs):
            return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)


def _contexts() -> tuple[Callable[[], Any], ...]:
    """Return the contexts of the current moment that change what a call computes."""
    contexts: list[Callable[[], Any]] = []
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        contexts.append(torch.no_grad)
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            contexts.append(functools.partial(torch.autocast, device, dtype=dtype))
    return tuple(contexts)
