"""Find the first difference between two runs' draws from one generator, such as a draw that only one run makes.

one     uniform_  s0 > s1     dropout  s1 > s2                     states before and after each draw
other   uniform_  s0 > s1     rand     s1 > s5     dropout  s5 > s6     only the other run makes `rand`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from ...records.values.call_record import CallRecord

Side = Literal["a", "b", "both"]


@dataclass(frozen=True, slots=True)
class DrawDifference:
    """The first draw that the two runs do not share.

    side: the run that makes the draw; `both` if both runs draw at this place, but draw a different count of numbers or
        use a different op
    a, b: the draw of each run
    after: the previous draw, which both runs share
    seeded: whether the call sets the generator to a different state instead of drawing from it
    forward: if the draw belongs to a recomputation in the backward, the draw of the forward that it repeats with
        different numbers
    """

    side: Side
    step: int
    a: CallRecord | None
    b: CallRecord | None
    after: CallRecord | None = None
    seeded: bool = False
    forward: CallRecord | None = None

    @property
    def call(self) -> CallRecord:
        """The draw to name in a sentence about the difference.

        If `side` is `both`, name b's draw, unless only a's draw has a module.
        """
        named = self.a if self.side == "a" else self.b
        if self.side == "both" and named is not None and not named.module and self.a is not None and self.a.module:
            named = self.a
        assert named is not None
        return named


_Draw = tuple[CallRecord, tuple[str, str]]


def extra_draw(a: Iterable[CallRecord], b: Iterable[CallRecord], generator: str) -> DrawDifference | None:
    """Compare both runs' draws from a generator in one step.

    Return the first difference; None if all draws are equal.
    """
    a_calls, b_calls = list(a), list(b)
    a_draws, b_draws = _draws(a_calls, generator), _draws(b_calls, generator)
    for place, (a_draw, b_draw) in enumerate(zip_longest(a_draws, b_draws)):
        if a_draw is not None and b_draw is not None and a_draw[1] == b_draw[1]:
            continue
        after = a_draws[place - 1][0] if place else None
        of_a, of_b = _forward_of(a_draw, a_calls), _forward_of(b_draw, b_calls)
        if (of_a is None) != (of_b is None):
            anew = _difference("b", None, b_draw, after) if of_a is None else _difference("a", a_draw, None, after)
            return replace(anew, forward=of_b or of_a)
        if a_draw is None or b_draw is None:
            side: Side = "b" if a_draw is None else "a"
            return _difference(side, a_draw, b_draw, after)
        if _key(a_draw) == _key(b_draw):
            return _difference("both", a_draw, b_draw, after)
        # If this draw of one run is the next draw of the other run, the other run has an extra draw here.
        for key in (_key, _op):
            if place + 1 < len(b_draws) and key(b_draws[place + 1]) == key(a_draw) != key(b_draw):
                return _difference("b", None, b_draw, after)
            if place + 1 < len(a_draws) and key(a_draws[place + 1]) == key(b_draw) != key(a_draw):
                return _difference("a", a_draw, None, after)
        return _difference("both", a_draw, b_draw, after)
    return None


def _forward_of(draw: _Draw | None, calls: Sequence[CallRecord]) -> CallRecord | None:
    """Return the draw of the forward that a recomputation in the backward makes anew; None for any other draw.

    A recomputation executes the ops of the forward on the same values: the calls up to both draws have the same ops,
    and one of them reads the same values. A recomputation that keeps the state of the generator draws from the state of
    the forward, and so makes nothing anew.
    """
    if draw is None or draw[0].phase != "backward" or not draw[0].op:
        return None
    run = _run_up(calls, draw[0])
    for earlier in calls:
        if earlier.phase != "forward" or earlier.op != draw[0].op or not earlier.drew:
            continue
        own = _run_up(calls, earlier)
        same_ops = [call.op for call in own] == [call.op for call in run]
        if same_ops and any(_read(call) and _read(call) == _read(again) for call, again in zip(own, run, strict=True)):
            return None if list(earlier.drew) == list(draw[0].drew) else earlier
    return None


RUN_UP = 2
"""The number of calls up to a draw, the draw included, that are compared with those of the forward. A dropout makes the
memory of its mask in the call before the draw; that call reads the dropout's input."""


def _run_up(calls: Sequence[CallRecord], draw: CallRecord) -> Sequence[CallRecord]:
    # Autograd detaches tensors to save them, which happens at other places in a recomputation.
    computing = [call for call in calls if call.name != "aten.detach"]
    number = next(number for number, call in enumerate(computing) if call is draw)
    return computing[max(0, number - RUN_UP + 1) : number + 1]


def _read(call: CallRecord) -> list[str]:
    """Return the digests of the values that a call only reads; an empty list if some were not recorded."""
    digests = [digest for place, (_, digest) in enumerate(call.tensors) if place not in call.written]
    return digests if all(digests) else []


def _draws(calls: Iterable[CallRecord], generator: str) -> Sequence[_Draw]:
    return [(call, (before, after)) for call in calls for name, before, after in call.drew if name == generator]


def _key(draw: _Draw) -> tuple[str, str]:
    return draw[0].op, draw[0].line


def _op(draw: _Draw) -> str:
    return draw[0].name.removesuffix("_")


def _difference(side: Side, a_draw: _Draw | None, b_draw: _Draw | None, after: CallRecord | None) -> DrawDifference:
    a, b = (None if draw is None else draw[0] for draw in (a_draw, b_draw))
    named = b or a
    assert named is not None
    seeded = side == "both" and not named.op
    return DrawDifference(side, named.step, a, b, after, seeded)
