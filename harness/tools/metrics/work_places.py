"""The lines of a script that copy to and from a device, and those whose functions are compiled again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...records.backend_work import FROM_DEVICE, ITEM, NON_BLOCKING, StepMetrics, Work

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """Copies in one `direction` (`to device`, `from device`) by one line, "" where that is not known.

    `cause` is `item` where Python got one value, and `non-blocking` where the script has left the copy to the device.
    There were `count` of them in `steps` steps, of which the setup is none; `seconds` are those of the script's calls,
    waits for the device included.
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
        """Whether the host waits there until the device has done all that it was given."""
        return self.direction == FROM_DEVICE and self.cause != NON_BLOCKING

    @property
    def text(self) -> str:
        """`item() (or float(), or an `if`) at train.py:11`."""
        what = (
            "item() (or float(), or an `if`)" if self.cause == ITEM else f"{self.cause} copy {self.direction}".strip()
        )
        return f"{what} at {self.call}" if self.call else what


@dataclass(frozen=True, slots=True)
class Recompilation:
    """What one line had compiled again for one reason: the guard that did not hold (`tensor 'x' size mismatch at index
    0. expected 3, actual 4`)."""

    call: str
    reason: str
    count: int
    seconds: float


def copy_places(parts: Sequence[StepMetrics]) -> list[CopyPlace]:
    """Of an adapter that tells of a device's copies, the longest first."""
    found: dict[tuple[str, str, str], list[tuple[int | None, Work]]] = {}
    for step, work in _work(parts):
        if work.kind == "transfer":
            found.setdefault((work.name, work.call, work.cause), []).append((step, work))
    places = [
        CopyPlace(
            *key,
            len(works),
            len({step for step, _ in works} - {None}),
            sum(work.size or 0 for _, work in works),
            _seconds([work for _, work in works]),
        )
        for key, works in found.items()
    ]
    return sorted(places, key=lambda one: (-one.seconds, -one.bytes, one.direction, one.call, one.cause))


def recompilations(parts: Sequence[StepMetrics]) -> list[Recompilation]:
    """The longest first."""
    found: dict[tuple[str, str], list[Work]] = {}
    for _, work in _work(parts):
        if work.kind == "compile" and work.cause:
            found.setdefault((work.call, work.cause), []).append(work)
    places = [
        Recompilation(*key, len(works), math.fsum(work.seconds or 0.0 for work in works))
        for key, works in found.items()
    ]
    return sorted(places, key=lambda one: (-one.seconds, one.call, one.reason))


def _work(parts: Sequence[StepMetrics]) -> Iterator[tuple[int | None, Work]]:
    return ((part.step, timed.work) for part in parts for timed in part.work)


def _seconds(works: Sequence[Work]) -> float:
    return math.fsum(work.seconds or 0.0 for work in works)
