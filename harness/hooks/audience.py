"""The dispatch of a training run's moments to its observers, in a fixed order.

A failure of one observer reaches neither the training nor the other observers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..records.run.run_config import RunConfig
from .observer import Observer, Surroundings

P = ParamSpec("P")
R = TypeVar("R")

OUTWARDS = frozenset({"backward_ended", "step_ended", "script_ended", "close"})
"""Moments that are reported from the last observer to the first. As with nested contexts, the newest hooks are removed
first."""


class Guard:
    """A context that keeps a failure of the recorder itself out of the training.

    It catches every `Exception` and calls `failed(doing, error)`; the script continues.
    """

    __slots__ = ("_doing", "_failed")

    def __init__(self, failed: Callable[[str, Exception], None], doing: str) -> None:
        self._failed = failed
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        # SystemExit and KeyboardInterrupt pass through: they are not failures, and must end the script.
        if isinstance(error, Exception):
            self._failed(self._doing, error)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the recording, to which several observers may belong.

    stops: the words of a failure's notice that say which recording ends.
    needed: if an observer of this part cannot be created, the run is refused.
    stays: when one observer of this part fails, all of them stop writing but are still notified of every moment,
        because the training itself may depend on them.
    """

    stops: str
    needed: bool = False
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """The position of one observer in the order.

    name: its name in notices and in the options of a bring-up tool.
    made_by: its class, as `module:class` in `observers/`.
    wanted: returns True for the runs that have this observer.
    """

    name: str
    made_by: str
    part: Part
    wanted: Callable[[RunConfig], bool]


class Audience:
    """The observers of one training run, in the order of their seats.

    `failed(part, doing, error)` is called when an observer fails and its part stops.
    """

    def __init__(self, failed: Callable[[Part, str, Exception], None]) -> None:
        self._failed = failed
        self._present: dict[Observer, None] = {}
        self._seats: dict[Observer, Seat] = {}
        self._guards: dict[Observer, Guard] = {}
        self._listeners: dict[str, Sequence[tuple[Observer, Callable[..., Any], Guard]]] = {}
        self._stopped: set[Part] = set()

    def take_seats(self, seats: Sequence[Seat], config: RunConfig, around: Callable[[Seat], Surroundings]) -> None:
        """Create the observers that a run wants; `around` returns the surroundings of each.

        Raises whatever an observer of a needed part raises, such as a UsageError for contradictory options.
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
                self._present[made], self._seats[made] = None, seat
                self._guards[made] = self.guard(made)

    def tell(self, moment: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Call `moment`, a method of Observer, on all observers that override it, and return their answers."""
        name = moment.__name__
        # Most observers override few moments, and `called_with` is reported at every call of a model: search only once.
        listeners = self._listeners.get(name)
        if listeners is None:
            original = getattr(Observer, name)
            overriding = [watcher for watcher in self._seats if getattr(type(watcher), name) is not original]
            ordered = reversed(overriding) if name in OUTWARDS else overriding
            listeners = self._listeners[name] = [
                (observer, getattr(observer, name), self._guards[observer]) for observer in ordered
            ]
        answers: list[R] = []
        for observer, listen, guard in listeners:
            if observer in self._present:  # an observer may leave while the others are notified
                with guard:
                    answers.append(listen(*args, **kwargs))
        return answers

    def guard(self, observer: Observer) -> Guard:
        """Return a context that keeps an observer's failure out of the training, for callers other than this class."""
        return Guard(lambda _, error: self._fails(observer, error), "")

    def close(self) -> None:
        """Close all observers, the last one first."""
        while self._present:
            observer, _ = self._present.popitem()
            with self._guards[observer]:
                observer.close()

    def forget(self) -> None:
        """Make every observer stop writing, in a fork of the process."""
        self.tell(Observer.forget)
        self._present.clear()

    def _fails(self, observer: Observer, error: Exception) -> None:
        seat = self._seats[observer]
        part, doing = seat.part, observer.doing or seat.name
        if not part.stays:
            # Remove the observer before closing it: a failure of `close` calls this method again.
            was_present = observer in self._present
            self._present.pop(observer, None)
            self._failed(part, doing, error)
            if was_present:
                with self._guards[observer]:
                    observer.close()
        else:
            self.stop(part, doing, error)

    def stop(self, part: Part, doing: str, error: Exception) -> None:
        """Make every observer of a part stop writing because of an error; `doing` names the activity that failed."""
        if part not in self._stopped:
            self._stopped.add(part)
            for observer, seat in self._seats.items():
                if seat.part is part:
                    observer.forget()
            self._failed(part, doing, error)
