"""The modules that are running, read from Python's frames. A compiler traces hooks of modules, but not this."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from numdrift.kernels.swaps.sites import ModuleNames

from .node_origin import EXPRESSION, path_in_source

CALLS = ("_wrapped_call_impl", "_call_impl")
"""The methods of `torch.nn.Module` that call a module's forward, with the module as their first argument."""


class ModuleFrames:
    """Names the modules that are running by their paths from the outermost of them, as `ModulePaths` does."""

    def __init__(self) -> None:
        self._names = ModuleNames()

    @property
    def current(self) -> str | None:
        """The path of the innermost module that is running, None if no module is."""
        calls = _calls(sys._getframe(1))
        return self._names.path(_called(calls[0]), _called(calls[-1])) if calls else None

    def paths(self, expressions: Iterable[tuple[str, Any]]) -> Mapping[str, str]:
        """Return the path of the module that each expression means. The class of each module is given with it.

        Dynamo's expressions refer to variables of the function that it compiled; call this while that runs. A compiled
        graph may run for many modules, as when a model calls the same compiled block several times:

            L['self'].ln_1    in the first block: blocks.0.ln_1, in the second: blocks.1.ln_1

        Modules that the function no longer refers to are left out.
        """
        caller = sys._getframe(1)
        calls = _calls(caller)
        outermost = _called(calls[-1]) if calls else None
        paths: dict[str, str] = {}
        for expression, kind in expressions:
            found = None if expression in paths else _found(caller, expression, kind)
            if found is not None:
                root, module = found
                paths[expression] = self._names.path(module, root if outermost is None else outermost)
        return paths


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _calls(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of the calls of modules that are on the stack, the innermost first."""
    return [
        caller
        for caller in _frames(frame)
        if caller.f_code.co_name in CALLS and caller.f_code.co_filename == torch.nn.modules.module.__file__
    ]


def _called(call: FrameType) -> torch.nn.Module:
    module: torch.nn.Module = call.f_locals["self"]
    return module


def _found(frame: FrameType | None, expression: str, kind: Any) -> tuple[torch.nn.Module, torch.nn.Module] | None:
    """Return the module that an expression means in the innermost frame that has one of this class, preceded by the
    outermost module on the way to it. For `L['self'].model.net` in a trainer's method, these are model and net."""
    match = EXPRESSION.match(expression)
    if match is None:
        return None
    scope, variable = match.groups()
    parts = path_in_source(expression)
    for candidate in _frames(frame):
        variables = candidate.f_locals if scope == "L" else candidate.f_globals
        if variable not in variables:
            continue
        values = [variables[variable]]
        for part in parts.split(".") if parts else ():
            values.append(_member(values[-1], part))
        modules = [value for value in values if isinstance(value, torch.nn.Module)]
        if modules and modules[-1] is values[-1] and (not isinstance(kind, type) or type(modules[-1]) is kind):
            return modules[0], modules[-1]
    return None


def _member(value: Any, name: str) -> Any:
    """Return a member of a module, an object or a container, None if there is none. No code of the script runs."""
    if type(value) in (list, tuple) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    if type(value) is dict:
        return value.get(name)
    if isinstance(value, torch.nn.Module) and name in value._modules:
        return value._modules[name]
    return getattr(value, "__dict__", {}).get(name)
