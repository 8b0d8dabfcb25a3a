"""Where two runs that draw from one generator come apart: the draw that one of them makes alone.

one     uniform_  s0 > s1     dropout  s1 > s2                     the states before and after
other   uniform_  s0 > s1     rand     s1 > s5     dropout  s5 > s6     `rand` is the other's alone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from ..records.call_record import CallRecord

Side = Literal["a", "b", "both"]


@dataclass(frozen=True, slots=True)
class DrawDifference:
    """The first draw that is not the other run's. `side` has it alone; of `both` each draws there, `a` and `b`, other
    counts or by other ops (`seeded`: it is put at another state). `after` is the draw before it, which is the same."""

    side: Side
    step: int
    a: CallRecord | None
    b: CallRecord | None
    after: CallRecord | None = None
    seeded: bool = False

    @property
    def call(self) -> CallRecord:
        """The draw to name: of both the other mode's, unless only the reference's is known to be of a module."""
        found = self.a if self.side == "a" else self.b
        if self.side == "both" and found is not None and not found.module and self.a is not None and self.a.module:
            found = self.a
        assert found is not None
        return found


def extra_draw(a: Iterable[CallRecord], b: Iterable[CallRecord], generator: str) -> DrawDifference | None:
    """The first draw from a generator in which the calls of a step differ, None where all are the same."""
    ours, theirs = _draws(a, generator), _draws(b, generator)
    for place, (mine, yours) in enumerate(zip_longest(ours, theirs)):
        if mine is not None and yours is not None and mine[1] == yours[1]:
            continue
        after = ours[place - 1][0] if place else None
        if mine is None or yours is None:
            side: Side = "b" if mine is None else "a"
            return _difference(side, mine, yours, after)
        if _key(mine) == _key(yours):
            return _difference("both", mine, yours, after)
        # One of the two is the other run's next one: then what comes before it is alone.
        for key in (_key, _op):
            if place + 1 < len(theirs) and key(theirs[place + 1]) == key(mine) != key(yours):
                return _difference("b", None, yours, after)
            if place + 1 < len(ours) and key(ours[place + 1]) == key(yours) != key(mine):
                return _difference("a", mine, None, after)
        return _difference("both", mine, yours, after)
    return None


_Draw = tuple[CallRecord, tuple[str, str]]


def _draws(calls: Iterable[CallRecord], generator: str) -> Sequence[_Draw]:
    return [(call, (before, after)) for call in calls for name, before, after in call.drew if name == generator]


def _key(draw: _Draw) -> tuple[str, str]:
    return draw[0].op, draw[0].line


def _op(draw: _Draw) -> str:
    return draw[0].name.removesuffix("_")


def _difference(side: Side, mine: _Draw | None, yours: _Draw | None, after: CallRecord | None) -> DrawDifference:
    a, b = (None if one is None else one[0] for one in (mine, yours))
    found = b or a
    assert found is not None
    seeded = side == "both" and not found.op
    return DrawDifference(side, found.step, a, b, after, seeded)
