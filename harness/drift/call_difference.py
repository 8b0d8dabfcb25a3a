"""Holds the calls of two trainings of one mode against each other, and says what first gave other bits in one of them.

    zeros       m0                        equal
    mul         m1 <- m0, 1.0000012       the number is another one in the other run: it came from outside of torch
    add_        m0 <- m1                  not looked at any more

Every call before the first difference has given the same bits on equal inputs in both runs. So what differs there has
come in by that call: by its kernel, a number, memory that no recorded op has filled, a generator, or by threads that
wrote to what it reads in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal

from ..records.call_record import CallRecord

What = Literal[
    "computed", "number", "outside", "generator", "seeded", "race", "changed", "unfilled", "branch", "earlier"
]
"""How two runs came apart:

computed    an op gives other results on equal inputs
number      an op is given another number, which no recorded op gave
outside     it reads memory that no recorded op gave
generator   it draws from a generator that is at another state
seeded      a line puts a generator at another state
race        it reads what threads have written in another order
changed     it reads memory that was changed since an op gave it, by no recorded op
unfilled    the same, of memory that was made without values
branch      the script goes on with other calls
earlier     it reads what a step has left that was not recorded
"""

UNFILLED = frozenset(
    f"aten.{name}"
    for name in (
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
        "resize_as_",
    )
)  # fmt: skip
"""Ops that make memory without values: what it holds is chance, and no finding until somebody reads it."""

BROUGHT = frozenset(("aten.set_",))
"""Ops that give a tensor other memory, as data loaders do with what their workers have sent."""

Steps = Iterable[tuple[int, Sequence[CallRecord]]]


@dataclass(frozen=True, slots=True)
class CallDifference:
    """The first difference of two runs. `one` and `other` are the calls that show it (None: the run has ended), and
    `made` is the call that has made what they read, or one of the threads' that race."""

    what: What
    step: int
    one: CallRecord | None
    other: CallRecord | None
    made: CallRecord | None = None
    numbers: tuple[str, str] = ("", "")

    @property
    def call(self) -> CallRecord:
        """The call to name."""
        found = self.made if self.what == "race" else self.one or self.other
        assert found is not None
        return found


@dataclass(slots=True)
class _Memory:
    """Who has made a memory, who of the main thread has written to it last, and who of other threads since."""

    maker: CallRecord
    last: CallRecord
    threads: list[CallRecord] = field(default_factory=list)


class _Side:
    """One run, as far as it was followed."""

    def __init__(self) -> None:
        self.memories: dict[int, _Memory] = {}

    def main(self, calls: Sequence[CallRecord]) -> Iterator[CallRecord]:
        """The calls of the main thread; those of others are taken on the way."""
        for call in calls:
            if call.thread:
                self.take(call)
            else:
                yield call

    def take(self, call: CallRecord) -> None:
        """Remember whose results lie where. A view of memory that is known makes nothing."""
        fresh = len(call.results) - len(call.written)
        for place, (memory, digest) in enumerate(call.results):
            if memory < 0:  # of a tensor without memory of its own
                continue
            known = self.memories.get(memory)
            if place >= fresh and known is not None:
                if call.thread:
                    known.threads.append(call)
                else:
                    known.last, known.threads = call, []
            elif digest or known is None:
                self.memories[memory] = _Memory(call, call, [call] if call.thread else [])


def first_difference(one: Steps, other: Steps) -> CallDifference | None:
    """The first difference of two runs in their recorded steps, None where there is none."""
    left, right = _Side(), _Side()
    expected, gap = 0, False
    for (step, ours), (_, theirs) in zip(one, other, strict=False):
        if step > expected:  # what lies in memory may have changed meanwhile
            left, right, gap = _Side(), _Side(), True
        expected = step + 1
        for mine, yours in zip_longest(left.main(ours), right.main(theirs)):
            found = _between(mine, yours, left, right)
            if found is not None:
                if found.what == "outside" and gap:
                    found = replace(found, what="earlier")
                return replace(found, step=step)
            left.take(mine)
            right.take(yours)
    return None


def _between(
    one: CallRecord | None, other: CallRecord | None, left: _Side, right: _Side, seen: frozenset[int] = frozenset()
) -> CallDifference | None:
    """The difference of two calls before which both runs were the same; memories that were `seen` are not followed."""
    if one is None or other is None or (one.op, one.line) != (other.op, other.line):
        return CallDifference("branch", 0, one, other)
    unfilled = False
    for place, ((memory, digest), (its, another)) in enumerate(zip(one.given, other.given, strict=False)):
        if digest != another and digest and another:
            # What an op only writes to may hold anything before (`fill_` takes it, too), and a view reads nothing.
            written = place in one.written or not any(digest for _, digest in one.results)
            if written and _is_unfilled(left, memory) and _is_unfilled(right, its):
                unfilled = True
            elif memory in seen:
                return CallDifference("changed", 0, one, other)
            else:
                return _of_memory(one, other, memory, its, left, right, seen | {memory})
    if one.numbers != other.numbers or len(one.given) != len(other.given):
        return CallDifference("number", 0, one, other, numbers=_unequal(one.numbers, other.numbers))
    for (name, before, after), (its_name, its_before, its_after) in zip(one.drew, other.drew, strict=False):
        if (name, before) != (its_name, its_before):
            return CallDifference("generator", 0, one, other, numbers=(name, its_name))
        if not one.op and after != its_after:
            return CallDifference("seeded", 0, one, other, numbers=(name, its_name))
    results = zip(one.results, other.results, strict=False)
    if one.name in UNFILLED or not any(mine != yours and mine and yours for (_, mine), (_, yours) in results):
        return None
    if one.name in BROUGHT:
        return CallDifference("outside", 0, one, other)
    return CallDifference("unfilled" if unfilled else "computed", 0, one, other)


def _of_memory(
    one: CallRecord, other: CallRecord, memory: int, its: int, left: _Side, right: _Side, seen: frozenset[int]
) -> CallDifference:
    """Why two calls read other values from memory that held the same when the main thread had last given it."""
    if memory < 0 or its < 0:  # whoever has given it is not known
        return CallDifference("changed", 0, one, other)
    mine, yours = left.memories.get(memory), right.memories.get(its)
    if mine is None or yours is None:
        return CallDifference("outside", 0, one, other)
    if not mine.threads and not yours.threads:
        if mine.maker.name in UNFILLED and yours.maker.name in UNFILLED:
            return CallDifference("unfilled", 0, one, other, mine.maker)
        return CallDifference("changed", 0, one, other, mine.last)
    # Of what threads have written: did one of them write something else, or all the same in another order?
    ours, theirs = (
        [_apart_from(call, where) for call in side.threads] for side, where in ((mine, memory), (yours, its))
    )
    if sorted(map(_content, ours)) == sorted(map(_content, theirs)):
        turns = zip(mine.threads, ours, theirs, strict=True)
        raced = next((call for call, a, b in turns if _content(a) != _content(b)), None)
        if raced is not None:
            return CallDifference("race", 0, one, other, raced)
    waiting = list(theirs)
    for call in ours:
        again = next((it for it in waiting if (it.thread, it.op, it.line) == (call.thread, call.op, call.line)), None)
        if again is not None:
            waiting.remove(again)
            found = _between(call, again, left, right, seen)
            if found is not None:
                return found
    return CallDifference("changed", 0, one, other, mine.threads[0] if mine.threads else mine.last)


def _apart_from(call: CallRecord, memory: int) -> CallRecord:
    """A call without the memory that several threads write to, and what they have made of that."""
    given = tuple(one for one in call.given if one[0] != memory)
    return replace(call, given=given, written=(), results=tuple((m, "" if m == memory else d) for m, d in call.results))


def _content(call: CallRecord) -> tuple[int, str, str, str, str]:
    """What a thread's call has done, whatever the order: which memory has which number is chance."""
    return call.thread, call.op, call.line, call.numbers, " ".join(digest for _, digest in call.given)


def _is_unfilled(side: _Side, memory: int) -> bool:
    known = side.memories.get(memory)
    return known is not None and known.last.name in UNFILLED


def _unequal(one: str, other: str) -> tuple[str, str]:
    """The first of two calls' numbers that differ."""
    for mine, yours in zip_longest(one.split(", "), other.split(", "), fillvalue=""):
        if mine != yours:
            return mine, yours
    return "", ""
