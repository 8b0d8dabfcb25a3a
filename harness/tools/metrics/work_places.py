"""The lines of a script that copy to and from a device, and the lines that are recompiled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...records.tools.backend_work import FROM_DEVICE, ITEM, NON_BLOCKING, StepMetrics, Work

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """Copies in one direction by one line.

    direction: `to device` or `from device`
    call: the line, "" if not known
    cause: `item` if Python read one value, `non-blocking` if the script did not wait for the copy
    steps: the number of steps with such copies, without the setup
    seconds: the time of the script's calls, including waits for the device
    """

    direction: str
    call: str
    cause: str
    count: int
    steps: int
    bytes: int
    seconds: float

    @property
    def waits(self) -> bool:
        """Check whether the host waits at this line until the device has finished all its work."""
        return self.direction == FROM_DEVICE and self.cause != NON_BLOCKING

    @property
    def text(self) -> str:
        """The copies as text: `item() (or float(), or an `if`) at train.py:11`."""
        what = (
            "item() (or float(), or an `if`)" if self.cause == ITEM else f"{self.cause} copy {self.direction}".strip()
        )
        return f"{what} at {self.call}" if self.call else what


@dataclass(frozen=True, slots=True)
class Recompilation:
    """Repeated compilations of one line for one reason.

    The reason is the guard that failed (`tensor 'x' size mismatch at index 0. expected 3, actual 4`).
    """

    call: str
    reason: str
    count: int
    seconds: float


def copy_places(parts: Sequence[StepMetrics]) -> list[CopyPlace]:
    """Return the copies that an adapter reports, by line, longest first."""
    works_by_key: dict[tuple[str, str, str], list[tuple[int | None, Work]]] = {}
    for step, work in _work(parts):
        if work.kind == "transfer":
            works_by_key.setdefault((work.name, work.call, work.cause), []).append((step, work))
    places = [
        CopyPlace(
            *key,
            len(works),
            len({step for step, _ in works} - {None}),
            sum(work.size or 0 for _, work in works),
            _seconds([work for _, work in works]),
        )
        for key, works in works_by_key.items()
    ]
    return sorted(places, key=lambda place: (-place.seconds, -place.bytes, place.direction, place.call, place.cause))


def recompilations(parts: Sequence[StepMetrics]) -> list[Recompilation]:
    """Return the recompilations, the longest first."""
    works_by_key: dict[tuple[str, str], list[Work]] = {}
    for _, work in _work(parts):
        if work.kind == "compile" and work.cause:
            works_by_key.setdefault((work.call, work.cause), []).append(work)
    places = [
        Recompilation(*key, len(works), math.fsum(work.seconds or 0.0 for work in works))
        for key, works in works_by_key.items()
    ]
    return sorted(places, key=lambda place: (-place.seconds, place.call, place.reason))


def _work(parts: Sequence[StepMetrics]) -> Iterator[tuple[int | None, Work]]:
    return ((part.step, timed.work) for part in parts for timed in part.work)


def _seconds(works: Sequence[Work]) -> float:
    return math.fsum(work.seconds or 0.0 for work in works)
