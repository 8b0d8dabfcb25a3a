"""The script's own calls to torch.compile. The code stays eager in modes that compile nothing. In other modes, the
mode's backend compiles it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from ..torch_private.compiler.compiling import compile_in_place
from ..torch_private.patches import Patches, Undo
from ..torch_private.profiling.compile_work import eager_wrapper
from .module_calls import ModuleCalls
from .understood import ScriptNotes

SHOWN = ("mode", "backend", "fullgraph", "dynamic", "options")


class Compiler(Protocol):
    """A mode that compiles."""

    backend: str

    def settings(self, mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None) -> Mapping[str, Any]:
        """Return the part of a script's `mode` and `options` that is kept, as arguments of torch.compile."""

    def leave_alone(self, module: torch.nn.Module) -> None:
        """Exclude a module from compilation, because a compiled function of the script calls it."""


class AsWritten:
    """The compiler of a script that is run as it is: each call of torch.compile keeps all of its arguments."""

    backend = ""

    def settings(self, mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None) -> Mapping[str, Any]:
        return {}

    def leave_alone(self, module: torch.nn.Module) -> None:
        """Do nothing: only what the script itself compiles is compiled."""


class ScriptCompiles:
    """Replaces `torch.compile` and `Module.compile`. `compiler` is None if the mode compiles nothing."""

    def __init__(self, compiler: Compiler | None, notes: ScriptNotes) -> None:
        self._compiler = compiler
        self._notes = notes

    def install(self, calls: ModuleCalls, called: Callable[[torch.nn.Module], None]) -> Undo:
        """Replace both functions. Return the function that undoes this.

        `called` receives the modules that a compiled function is about to call.
        """
        compile_, method = torch.compile, torch.nn.Module.compile
        self._original, self._calls, self._called = compile_, calls, called

        @functools.wraps(compile_)
        def routed(model: Any = None, **kwargs: Any) -> Any:
            if model is None:
                return functools.partial(routed, **kwargs)
            if kwargs.get("disable"):
                return self._compile(model, kwargs)
            self._tell(model, kwargs)
            is_module = isinstance(model, torch.nn.Module)
            if self._compiler is not None:
                compiled = self._compile(model, self._arguments(kwargs))
                return compiled if is_module else self._reporting(model, compiled)
            if not is_module:
                return model
            with self._calls.closed():
                return eager_wrapper(model)

        @functools.wraps(method)
        def in_place(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            self._tell(module, kwargs)
            if self._compiler is not None and not kwargs.get("disable"):
                compile_in_place(module, **self._arguments(kwargs))

        with Patches("the recording's hooks") as patches:
            patches.wrap(torch, "compile", lambda before: routed)
            patches.replace(torch.nn.Module, "compile", in_place)
        return patches.undo

    def _tell(self, target: Any, kwargs: Mapping[str, Any]) -> None:
        shown = [f"{name}={_shown(kwargs[name])}" for name in SHOWN if kwargs.get(name) is not None]
        call = f"torch.compile({', '.join([_name(target), *shown])})"
        if self._compiler is None or kwargs.get("disable"):
            self._notes.note("compile", f"{call} stays eager")
            return
        if isinstance(self._compiler, AsWritten):
            self._notes.note("compile", f"{call} compiles as the script says")
            return
        arguments = self._arguments(kwargs)
        settings = ", ".join(f"{name}={_shown(arguments[name])}" for name in SHOWN if arguments.get(name) is not None)
        self._notes.note("compile", f"{call} compiles with {settings}")

    def _arguments(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that torch.compile receives in place of the script's arguments."""
        assert self._compiler is not None
        if isinstance(self._compiler, AsWritten):
            return dict(kwargs)
        # If the script names a backend other than Inductor, that backend's `mode` and `options` are dropped with it:
        # they mean nothing to Inductor.
        script_arguments = {name: value for name, value in kwargs.items() if name not in ("backend", "mode", "options")}
        for_inductor = kwargs.get("backend") in (None, "inductor")
        mode, options = (kwargs.get("mode"), kwargs.get("options")) if for_inductor else (None, None)
        settings = self._compiler.settings(mode, options, kwargs.get("dynamic"))
        return {"backend": self._compiler.backend, **script_arguments, **settings}

    def _compile(self, model: Any, kwargs: Mapping[str, Any]) -> Any:
        with self._calls.closed():  # torch.compile keeps the model's bound `__call__`, which must be torch's own
            return self._original(model, **kwargs)

    def _reporting(self, function: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the compiled function, so that the modules that it can call are reported before it runs for the first
        time."""
        reported = False

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal reported
            if torch.compiler.is_compiling() or not self._calls.outside:
                return compiled(*args, **kwargs)
            if not reported:
                reported = True
                for module in modules_called_by(function, args, kwargs):
                    self._compiler.leave_alone(module)  # type: ignore[union-attr]
                    self._called(module)
            with self._calls.closed():
                return compiled(*args, **kwargs)

        return call


def modules_called_by(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.nn.Module]:
    """Return the modules with parameters that a function can reach, except for modules inside other ones.

    A function can reach its arguments, the object that it is bound to, the attributes of these, and the variables that
    its code names.
    """
    modules: dict[int, torch.nn.Module] = {}
    for value in _reachable(function, args, kwargs):
        if isinstance(value, torch.nn.Module) and next(value.parameters(), None) is not None:
            modules.setdefault(id(value), value)
    inner = {id(part) for module in modules.values() for part in module.modules() if part is not module}
    return [module for key, module in modules.items() if key not in inner]


def _reachable(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    bound = getattr(function, "__self__", None)
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType):
        variables = getattr(function, "__globals__", {})
        yield from (variables[name] for name in _names(code) if name in variables)
        for cell in getattr(function, "__closure__", None) or ():
            try:
                yield cell.cell_contents
            except ValueError:  # a variable without a value yet
                continue
    for value in [bound, *args, *kwargs.values()]:
        yield value
        if not isinstance(value, (torch.nn.Module, torch.Tensor)) and hasattr(value, "__dict__"):
            yield from vars(value).values()
        elif isinstance(value, (list, tuple)):
            yield from value


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names in a function's code, in order, including the names in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _name(target: Any) -> str:
    if isinstance(target, torch.nn.Module):
        return type(target).__name__
    return str(getattr(target, "__qualname__", type(target).__name__)).rpartition("<locals>.")[2]


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (str, bool, int, dict)) else str(getattr(value, "__name__", value))
