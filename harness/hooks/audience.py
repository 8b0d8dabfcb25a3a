"""Tells the moments of a training to its observers, in one order, and keeps their failures from it and from
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
"""Told from the last observer to the first, as contexts are left: what was put on top of others goes first."""


class Guard:
    """A context that keeps a failure of the recorder's own out of the training.

    It ends with any exception: `failed` is told what was being done, the script goes on.
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
    """What an observer belongs to; `stops` says in the notice of a failure what ends with it.

    A part that is `needed` refuses the run where one of its observers cannot be made. With `stays` its observers all
    stop writing when one of them fails, and go on being told, for what they do for the training itself.
    """

    stops: str
    needed: bool = False
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """One observer's place in the order: `made_by` is `module:class` in `observers/`, `wanted` says which runs have it.

    `name` is what a notice calls it, and the options of a bring-up tool.
    """

    name: str
    made_by: str
    part: Part
    wanted: Callable[[RunConfig], bool]


class Audience:
    """The observers of one training, in the order of their seats; `failed(part, doing, error)` is told who stops."""

    def __init__(self, failed: Callable[[Part, str, Exception], None]) -> None:
        self._failed = failed
        self._there: dict[Observer, None] = {}
        self._seats: dict[Observer, Seat] = {}
        self._guards: dict[Observer, Guard] = {}
        self._told: dict[str, tuple[Observer, ...]] = {}
        self._stopped: set[Part] = set()

    def take_seats(self, seats: Sequence[Seat], config: RunConfig, around: Callable[[Seat], Surroundings]) -> None:
        """Make the observers that a run wants; `around` gives what each works with.

        Raises what one of a needed part raises, a UsageError where the run makes no sense.
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
        """Tell a moment, a method of Observer, to all who wait for it; gives what they answer."""
        name = moment.__name__
        # Most observers override few moments, and `given` is told at every call of a model: who does is looked up once.
        waiting = self._told.get(name)
        if waiting is None:
            nothing = getattr(Observer, name)
            found = [one for one in self._seats if getattr(type(one), name) is not nothing]
            waiting = self._told[name] = tuple(reversed(found) if name in OUTWARDS else found)
        answers: list[R] = []
        for one in waiting:
            if one in self._there:  # one may leave while the others are told
                with self._guards[one]:
                    answers.append(getattr(one, name)(*args, **kwargs))
        return answers

    def guard(self, one: Observer) -> Guard:
        """Keeps a failure of an observer out of the training, also where others call it than this audience."""
        return Guard(lambda _, error: self._fails(one, error), "")

    def close(self) -> None:
        """Have all leave, the last one first."""
        while self._there:
            one, _ = self._there.popitem()
            with self._guards[one]:
                one.close()

    def forget(self) -> None:
        """This is a fork of the process: have nobody write anything any more."""
        self.tell(Observer.forget)
        self._there.clear()

    def _fails(self, one: Observer, error: Exception) -> None:
        seat = self._seats[one]
        part, doing = seat.part, one.doing or seat.name
        if not part.stays:
            # Out before it is closed: a failure of its `close` comes back here, and must not close it again.
            was_there = one in self._there
            self._there.pop(one, None)
            self._failed(part, doing, error)
            if was_there:
                with self._guards[one]:
                    one.close()
        else:
            self.stop(part, doing, error)

    def stop(self, part: Part, doing: str, error: Exception) -> None:
        """Have nobody of a part write anything any more, because of an error in `doing` something."""
        if part not in self._stopped:
            self._stopped.add(part)
            for other, seat in self._seats.items():
                if seat.part is part:
                    other.forget()
            self._failed(part, doing, error)
