"""Report the moments of a training to its observers, in one order, and keep their failures out of the training and of
each other."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..records.run_config import RunConfig
from .observer import Observer, Surroundings

P = ParamSpec("P")
R = TypeVar("R")

OUTWARDS = frozenset({"backward_ended", "step_ended", "script_ended", "close"})
"""Moments that are reported from the last observer to the first, as contexts are left: the newest hooks go first."""


class Guard:
    """A context that keeps a failure of the recorder itself out of the training.

    Any exception ends in it: `failed` is called with what was being done and the exception, and the script continues.
    """

    __slots__ = ("_doing", "_failed")

    def __init__(self, failed: Callable[[str, Exception], None], doing: str) -> None:
        self._failed = failed
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        # SystemExit and KeyboardInterrupt are no failures: they end the script.
        if isinstance(error, Exception):
            self._failed(self._doing, error)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a recording that an observer belongs to; `stops` says in the notice of a failure what ends with it.

    A part that is `needed` refuses the run if one of its observers cannot be made. If a part `stays`, all its observers
    stop writing when one of them fails. They still hear of every moment, for what they do for the training itself.
    """

    stops: str
    needed: bool = False
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """The position of one observer in the order. `made_by` is `module:class` in `observers/`.

    `wanted` says which runs have the observer. Notices call it `name`, and so do the options of a bring-up tool.
    """

    name: str
    made_by: str
    part: Part
    wanted: Callable[[RunConfig], bool]


class Audience:
    """The observers of one training, in the order of their seats; `failed(part, doing, error)` reports what stops."""

    def __init__(self, failed: Callable[[Part, str, Exception], None]) -> None:
        self._failed = failed
        self._there: dict[Observer, None] = {}
        self._seats: dict[Observer, Seat] = {}
        self._guards: dict[Observer, Guard] = {}
        self._told: dict[str, tuple[Observer, ...]] = {}
        self._stopped: set[Part] = set()

    def take_seats(self, seats: Sequence[Seat], config: RunConfig, around: Callable[[Seat], Surroundings]) -> None:
        """Make the observers that a run wants; `around` returns the surroundings of each.

        Raises what an observer of a needed part raises: a UsageError if the run makes no sense.
        """
        for seat in seats:
            if not seat.wanted(config):
                continue
            try:
                module, _, name = seat.made_by.partition(":")
                made = getattr(importlib.import_module(f"numdrift.harness.observers.{module}"), name)(around(seat))
            except Exception as error:
                if seat.part.needed:
                    raise
                self._failed(seat.part, seat.name, error)
            else:
                self._there[made], self._seats[made] = None, seat
                self._guards[made] = self.guard(made)

    def tell(self, moment: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Report a moment, a method of Observer, to all observers that override it; return their answers."""
        name = moment.__name__
        # Most observers override few moments, and `given` is reported at every call of a model: look up once which do.
        waiting = self._told.get(name)
        if waiting is None:
            original = getattr(Observer, name)
            overriding = [watcher for watcher in self._seats if getattr(type(watcher), name) is not original]
            waiting = self._told[name] = tuple(reversed(overriding) if name in OUTWARDS else overriding)
        answers: list[R] = []
        for observer in waiting:
            if observer in self._there:  # an observer may leave while the moment is reported to the others
                with self._guards[observer]:
                    answers.append(getattr(observer, name)(*args, **kwargs))
        return answers

    def guard(self, observer: Observer) -> Guard:
        """Keep a failure of an observer out of the training, also where something other than this audience calls it."""
        return Guard(lambda _, error: self._fails(observer, error), "")

    def close(self) -> None:
        """Close all observers, the last one first."""
        while self._there:
            observer, _ = self._there.popitem()
            with self._guards[observer]:
                observer.close()

    def forget(self) -> None:
        """Make every observer stop writing: this is a fork of the process."""
        self.tell(Observer.forget)
        self._there.clear()

    def _fails(self, observer: Observer, error: Exception) -> None:
        seat = self._seats[observer]
        part, doing = seat.part, observer.doing or seat.name
        if not part.stays:
            # Remove it before it is closed: a failure of `close` comes back here, and must not close it again.
            was_there = observer in self._there
            self._there.pop(observer, None)
            self._failed(part, doing, error)
            if was_there:
                with self._guards[observer]:
                    observer.close()
        else:
            self.stop(part, doing, error)

    def stop(self, part: Part, doing: str, error: Exception) -> None:
        """Make every observer of a part stop writing, because of an error in `doing` something."""
        if part not in self._stopped:
            self._stopped.add(part)
            for observer, seat in self._seats.items():
                if seat.part is part:
                    observer.forget()
            self._failed(part, doing, error)
