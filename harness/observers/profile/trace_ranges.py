"""The named ranges of a trace: phases, modules and the script's own blocks, properly nested whatever comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Sort = Literal["phase", "module", "block", "range", "cut"]


class Handle(Protocol):
    """A range that is open."""

    def __exit__(self, *_: object) -> object: ...


@dataclass(slots=True)
class _Range:
    name: str
    sort: Sort
    handle: Handle | None = None


class Ranges:
    """What is open on the script's own thread, the outermost first, and apart from it on each other thread.

    A trace holds slices that lie within each other or beside each other. A phase begins where the script says nothing
    of it, so it may begin within a block and end after it: it is split at the block's borders then. While nothing is
    traced the ranges are known and none is written; `resume` opens those that the script is in.
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
        """Whether this is the script's own thread."""
        return threading.get_ident() == self._thread

    def phase(self, name: str) -> None:
        """The script's thread is in this phase from here on; "" for none."""
        place = next((number for number, one in enumerate(self._open) if one.sort == "phase"), None)
        if place is None:
            if name:
                self._push(self._open, _Range(name, "phase"))
            return
        # What is open within the old phase is closed with it and opened anew within the new one.
        within = [_Range(one.name, one.sort) for one in self._open[place + 1 :]]
        self._close_from(self._open, place)
        for one in ([_Range(name, "phase")] if name else []) + within:
            self._push(self._open, one)

    def enter(self, name: str, sort: Sort) -> None:
        # [phase] becomes [block, phase]: the phase may go on after the block, and is split at its border.
        stack = self._stack()
        around = stack[-1] if stack and sort == "block" and stack[-1].sort == "phase" else None
        if around is not None:
            self._close_from(stack, len(stack) - 1)
        self._push(stack, _Range(name, sort))
        if around is not None:
            self._push(stack, _Range(around.name, "phase"))

    def leave(self, name: str, sort: Sort) -> None:
        """The innermost range of that name ends; what is open within it goes on after it if it is a phase."""
        stack = self._stack()
        # One that was begun before the trace, or on another thread, is not there: nothing ends then.
        places = [n for n, one in enumerate(stack) if (one.name, one.sort) == (name, sort)]
        if not places:
            return
        within = [one.name for one in stack[places[-1] + 1 :] if one.sort == "phase"]
        self._close_from(stack, places[-1])
        for phase in within:
            self._push(stack, _Range(phase, "phase"))

    def resume(self, outermost: str) -> None:
        """Write from here on, within a range of this name: a trace has begun."""
        self._written = True
        self._outermost = self._begin(outermost)
        for one in self._open:
            one.handle = self._begin(one.name)

    def suspend(self) -> None:
        """Close what is written: the trace is about to end."""
        for one in reversed(self._open):
            self._end(one)
        self._elsewhere.clear()
        outermost, self._outermost = self._outermost, None
        if outermost is not None:
            outermost.__exit__(None, None, None)
        self._written = False

    def forget(self) -> None:
        """This is a fork of the process: begin nothing any more, and leave what is open to the process that
        began it."""
        self._written = False

    def _stack(self) -> list[_Range]:
        return self._open if self.here else self._elsewhere.setdefault(threading.get_ident(), [])

    def _push(self, stack: list[_Range], one: _Range) -> None:
        if self._written:
            one.handle = self._begin(one.name)
        stack.append(one)

    def _close_from(self, stack: list[_Range], place: int) -> None:
        for one in reversed(stack[place:]):
            self._end(one)
        del stack[place:]

    @staticmethod
    def _end(one: _Range) -> None:
        handle, one.handle = one.handle, None
        if handle is not None:
            handle.__exit__(None, None, None)
