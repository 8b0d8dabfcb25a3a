"""Compilations of a mode that compiles, written into the journal as they begin and end: who waits sees what for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import NotAvailable
from ..hooks.mode_protocol import compiles
from ..hooks.observer import Observer, RecordingSurroundings
from ..tape.origin import script_line
from ..torch_private.compile_work import watch_compilations


class CompilationsTold(Observer):
    """Writes `compiling` (`backward`, the script's `line`) and `compiled` (`seconds`) around each outermost
    compilation."""

    def __init__(self, surroundings: RecordingSurroundings) -> None:
        self._script = surroundings.config.script
        self._write = surroundings.write
        self._watched = compiles(surroundings.mode)
        self._began = 0.0
        self._undo: Callable[[], None] = lambda: None

    def install(self) -> None:
        if self._watched:
            with suppress(NotAvailable):  # nothing is told of them then
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
