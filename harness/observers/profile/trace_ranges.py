"""The named ranges of a trace: phases, modules and the script's own blocks, always properly nested."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Sort = Literal["phase", "module", "block", "range", "cut"]


class Handle(Protocol):
    """An open range."""

    def __exit__(self, *_: object) -> object: ...


@dataclass(slots=True)
class _Range:
    name: str
    sort: Sort
    handle: Handle | None = None


class Ranges:
    """The open ranges of the script's own thread, outermost first, and separately those of each other thread.

    The slices of a trace must be nested or side by side. The script does not mark phases, so a phase may begin within a
    block and end after it; the phase is then split at the block's borders. While nothing is traced, the ranges are
    tracked but not written. `resume` opens those that the script is in.
    """

    def __init__(self, begin: Callable[[str], Handle]) -> None:
        self._begin = begin
        self._thread = threading.get_ident()
        self._open: list[_Range] = []
        self._elsewhere: dict[int, list[_Range]] = {}
        self._outermost: Handle | None = None
        self._written = False

    @property
    def here(self) -> bool:
        """True on the script's own thread."""
        return threading.get_ident() == self._thread

    def phase(self, name: str) -> None:
        """End the current phase on the script's thread, and begin the phase `name` unless it is ""."""
        place = next((number for number, open_range in enumerate(self._open) if open_range.sort == "phase"), None)
        if place is None:
            if name:
                self._push(self._open, _Range(name, "phase"))
            return
        # A range that is open within the old phase is closed with it and opened again within the new phase.
        within = [_Range(open_range.name, open_range.sort) for open_range in self._open[place + 1 :]]
        self._close_from(self._open, place)
        for new_range in ([_Range(name, "phase")] if name else []) + within:
            self._push(self._open, new_range)

    def enter(self, name: str, sort: Sort) -> None:
        # [phase] becomes [block, phase]: the phase may outlast the block, so it is split at the block's border.
        stack = self._stack()
        around = stack[-1] if stack and sort == "block" and stack[-1].sort == "phase" else None
        if around is not None:
            self._close_from(stack, len(stack) - 1)
        self._push(stack, _Range(name, sort))
        if around is not None:
            self._push(stack, _Range(around.name, "phase"))

    def leave(self, name: str, sort: Sort) -> None:
        """End the innermost range of that name. A phase that is open within it continues after it."""
        stack = self._stack()
        # A range that began before the trace or on another thread is not in the stack.
        places = [n for n, open_range in enumerate(stack) if (open_range.name, open_range.sort) == (name, sort)]
        if not places:
            return
        within = [open_range.name for open_range in stack[places[-1] + 1 :] if open_range.sort == "phase"]
        self._close_from(stack, places[-1])
        for phase in within:
            self._push(stack, _Range(phase, "phase"))

    def resume(self, outermost: str) -> None:
        """Write ranges from now on, within a range of this name: a trace has begun."""
        self._written = True
        self._outermost = self._begin(outermost)
        for open_range in self._open:
            open_range.handle = self._begin(open_range.name)

    def suspend(self) -> None:
        """Close the written ranges: the trace is about to end."""
        for open_range in reversed(self._open):
            self._end(open_range)
        self._elsewhere.clear()
        outermost, self._outermost = self._outermost, None
        if outermost is not None:
            outermost.__exit__(None, None, None)
        self._written = False

    def forget(self) -> None:
        """Begin no more ranges in this fork of the process.

        The open ranges are left to the parent, which began them.
        """
        self._written = False

    def _stack(self) -> list[_Range]:
        return self._open if self.here else self._elsewhere.setdefault(threading.get_ident(), [])

    def _push(self, stack: list[_Range], open_range: _Range) -> None:
        if self._written:
            open_range.handle = self._begin(open_range.name)
        stack.append(open_range)

    def _close_from(self, stack: list[_Range], place: int) -> None:
        for open_range in reversed(stack[place:]):
            self._end(open_range)
        del stack[place:]

    @staticmethod
    def _end(open_range: _Range) -> None:
        handle, open_range.handle = open_range.handle, None
        if handle is not None:
            handle.__exit__(None, None, None)
