"""The outermost module calls of a training script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Called = Callable[[torch.nn.Module, Sequence[Any], Mapping[str, Any]], None]
"""A function that receives a module that is about to be called, and the call's arguments."""

Returned = Callable[[torch.nn.Module, Any], None]
"""A function that receives a module that has been called, and what it returned."""


class ModuleCalls:
    """Reports outermost module calls while it is open.

    `torch.nn.Module.__call__` is replaced only between outermost calls and restored during each of them, so calls of
    inner modules never reach the replacement. If a compiled function of the script calls a module, the compiler may
    trace the replacement, which then only calls torch's own `__call__`.

    With `stays`, it is also replaced during the calls, in which the replacement calls torch's own. This is for modes
    that compile nothing. Each replacement changes all classes of modules, so that Python forgets where it has found
    their attributes, which takes longer than many calls of inner modules.
    """

    def __init__(
        self, called: Called, returned: Returned = lambda module, outputs: None, *, stays: bool = False
    ) -> None:
        self._original = torch.nn.Module.__call__
        self._called = called
        self._open = self._inside = False
        original = self._original

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            # A compiler that traces this does not read `_inside`, on which its code would then depend.
            if torch.compiler.is_compiling() or self._inside:
                return original(module, *args, **kwargs)
            self._inside = True
            if not stays:
                self._replace_call(original)
            try:
                self._called(module, args, kwargs)
                outputs = original(module, *args, **kwargs)
                returned(module, outputs)
                return outputs
            finally:
                self._inside = False
                if self._open and not stays:  # the call may have ended the recording
                    self._replace_call(self._replacement)

        self._replacement: Callable[..., Any] = call

    def open(self) -> None:
        if not self._open:
            self._open = True
            self._replace_call(self._replacement)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._replace_call(self._original)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Restore torch's own call within the context."""
        current = torch.nn.Module.__call__
        self._replace_call(self._original)
        try:
            yield
        finally:
            if self._open or current is self._original:
                self._replace_call(current)

    @property
    def outside(self) -> bool:
        """True if a module call at this moment would be an outermost one, and would be reported."""
        return torch.nn.Module.__call__ is self._replacement and not self._inside

    def _replace_call(self, function: Callable[..., Any]) -> None:
        torch.nn.Module.__call__ = function  # type: ignore[method-assign]
