"""Writes the beginnings and ends of compilations into the journal, so that a waiting user sees the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from ...errors import NotAvailable
from ...hooks.observer import Observer, RecordingSurroundings
from ...tape.origin import script_line
from ...torch_private.profiling.compile_work import watch_compilations


class CompilationEvents(Observer):
    """Writes events around each outermost compilation.

    The events are `compiling` (with `backward` and the script's `line`) and `compiled` (with `seconds`).
    """

    def __init__(self, surroundings: RecordingSurroundings) -> None:
        self._script = surroundings.config.script
        self._write = surroundings.write
        self._watched = surroundings.mode.capabilities.compiles
        self._began = 0.0
        self._undo: Callable[[], None] = lambda: None

    def install(self) -> None:
        if self._watched:
            with suppress(NotAvailable):  # compilations are then not reported
                self._undo = watch_compilations(self._begins, self._ends)

    def _begins(self, number: str, backward: bool) -> None:
        self._began = time.perf_counter()
        with suppress(OSError, ValueError):
            self._write("compiling", backward=backward, line=script_line(self._script) or "")

    def _ends(self) -> None:
        with suppress(OSError, ValueError):
            self._write("compiled", seconds=time.perf_counter() - self._began)

    def close(self) -> None:
        self._undo()


def compiling_again(script: str, write: Callable[..., None]) -> Callable[[int, bool], AbstractContextManager[None]]:
    """Return a function that makes the context in which a graph is compiled again to observe its inside.

    The context writes the events of `CompilationEvents` around the compilation. Its event `compiling` contains the
    number of the graph as `again`.
    """

    @contextmanager
    def around(number: int, backward: bool) -> Iterator[None]:
        began = time.perf_counter()
        line = script_line(script) or ""
        with suppress(OSError, ValueError):
            write("compiling", backward=backward, line=line, again=number)
        try:
            yield
        finally:
            with suppress(OSError, ValueError):
                write("compiled", seconds=time.perf_counter() - began)

    return around
