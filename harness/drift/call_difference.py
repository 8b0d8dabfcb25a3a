"""The first call that returned different bits in two runs of one mode. In this example it is `mul`:

    zeros       m0                        equal
    mul         m1 <- m0, 1.0000012       the other run has a different number, which came from outside of torch
    add_        m0 <- m1                  no longer compared

Every call before the first difference returned the same bits on equal inputs in both runs. So the first differing
call introduced the difference: through its kernel, a number, memory that no recorded op filled, a generator, or threads
that wrote in a different order to the memory that the call reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal

from ..records.values.call_record import CallRecord

What = Literal[
    "computed", "number", "outside", "generator", "seeded", "race", "changed", "unfilled", "branch", "earlier"
]
"""The way in which two runs begin to differ:

computed    an op returns different results on equal inputs
number      an op receives a different number, which no recorded op returned
outside     an op reads memory that no recorded op returned
generator   an op draws from a generator that is in a different state
seeded      a line sets a generator to a different state
race        an op reads memory that threads wrote to in a different order
changed     an op reads memory that was changed since an op returned it, but not by a recorded op
unfilled    as `changed`, but the memory was allocated without values
branch      the script goes on with different calls
earlier     an op reads memory from an earlier step, which was not recorded
"""

UNFILLED = frozenset(
    f"aten.{name}"
    for name in (
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
        "resize_as_",
    )
)  # fmt: skip
"""Ops that allocate memory without values. The arbitrary content is a finding only once an op reads it."""

BROUGHT = frozenset(("aten.set_",))
"""Ops that point a tensor at different memory, as data loaders do with the tensors that their workers sent."""

Steps = Iterable[tuple[int, Sequence[CallRecord]]]


@dataclass(frozen=True, slots=True)
class CallDifference:
    """The first difference of two runs.

    `a` and `b` are the calls that show the difference (None for a run that has ended). `made` is the call that produced
    the memory that they read, or one of the racing calls of other threads.
    """

    what: What
    step: int
    a: CallRecord | None
    b: CallRecord | None
    made: CallRecord | None = None
    numbers: tuple[str, str] = ("", "")

    @property
    def call(self) -> CallRecord:
        """The call that a sentence about the difference names."""
        named = self.made if self.what == "race" else self.a or self.b
        assert named is not None
        return named


@dataclass(slots=True)
class _Memory:
    """The history of a piece of memory.

    `maker` is the call that produced it, `last` is the main thread's last call that wrote to it, and `threads` are the
    calls of other threads that wrote to it since.
    """

    maker: CallRecord
    last: CallRecord
    threads: list[CallRecord] = field(default_factory=list)


class _Side:
    """The pieces of memory that one run has used, up to the current call."""

    def __init__(self) -> None:
        self.memories: dict[int, _Memory] = {}

    def main(self, calls: Sequence[CallRecord]) -> Iterator[CallRecord]:
        """Yield the calls of the main thread, and record the calls of other threads between them."""
        for call in calls:
            if call.thread:
                self.take(call)
            else:
                yield call

    def take(self, call: CallRecord) -> None:
        """Record the memory of each of the call's results. A view of known memory is not new memory."""
        fresh = len(call.results) - len(call.written)
        for place, (memory, digest) in enumerate(call.results):
            if memory < 0:  # a tensor without its own memory
                continue
            record = self.memories.get(memory)
            if place >= fresh and record is not None:
                if call.thread:
                    record.threads.append(call)
                else:
                    record.last, record.threads = call, []
            elif digest or record is None:
                self.memories[memory] = _Memory(call, call, [call] if call.thread else [])


def first_difference(a_steps: Steps, b_steps: Steps) -> CallDifference | None:
    """Return the first difference between two runs in their recorded steps; None if there is none."""
    left, right = _Side(), _Side()
    expected, gap = 0, False
    for (step, a_calls), (_, b_calls) in zip(a_steps, b_steps, strict=False):
        if step > expected:  # memory may have changed in the steps that were not recorded
            left, right, gap = _Side(), _Side(), True
        expected = step + 1
        for a_call, b_call in zip_longest(left.main(a_calls), right.main(b_calls)):
            difference = _between(a_call, b_call, left, right)
            if difference is not None:
                if difference.what == "outside" and gap:
                    difference = replace(difference, what="earlier")
                return replace(difference, step=step)
            left.take(a_call)
            right.take(b_call)
    return None


def _between(
    a_call: CallRecord | None, b_call: CallRecord | None, left: _Side, right: _Side, seen: frozenset[int] = frozenset()
) -> CallDifference | None:
    """Return the difference between two calls; None if the calls are equal. Both runs were the same before them.

    Pieces of memory in `seen` are not followed.
    """
    if a_call is None or b_call is None or (a_call.op, a_call.line) != (b_call.op, b_call.line):
        return CallDifference("branch", 0, a_call, b_call)
    unfilled = False
    for place, ((memory, digest), (its, its_digest)) in enumerate(zip(a_call.tensors, b_call.tensors, strict=False)):
        if digest != its_digest and digest and its_digest:
            # An op that only writes to memory does not depend on the memory's content (although `fill_` takes the
            # memory as an argument), and a view reads nothing.
            written = place in a_call.written or not any(digest for _, digest in a_call.results)
            if written and _is_unfilled(left, memory) and _is_unfilled(right, its):
                unfilled = True
            elif memory in seen:
                return CallDifference("changed", 0, a_call, b_call)
            else:
                return _of_memory(a_call, b_call, memory, its, left, right, seen | {memory})
    if a_call.numbers != b_call.numbers or len(a_call.tensors) != len(b_call.tensors):
        return CallDifference("number", 0, a_call, b_call, numbers=_unequal(a_call.numbers, b_call.numbers))
    for (name, before, after), (its_name, its_before, its_after) in zip(a_call.drew, b_call.drew, strict=False):
        if (name, before) != (its_name, its_before):
            return CallDifference("generator", 0, a_call, b_call, numbers=(name, its_name))
        if not a_call.op and after != its_after:
            return CallDifference("seeded", 0, a_call, b_call, numbers=(name, its_name))
    results = zip(a_call.results, b_call.results, strict=False)
    if a_call.name in UNFILLED or not any(
        a_digest != b_digest and a_digest and b_digest for (_, a_digest), (_, b_digest) in results
    ):
        return None
    if a_call.name in BROUGHT:
        return CallDifference("outside", 0, a_call, b_call)
    return CallDifference("unfilled" if unfilled else "computed", 0, a_call, b_call)


def _of_memory(
    a_call: CallRecord, b_call: CallRecord, memory: int, its: int, left: _Side, right: _Side, seen: frozenset[int]
) -> CallDifference:
    """Return why two calls read different values from a piece of memory.

    The content of the memory was the same in both runs when the main thread last wrote to it.
    """
    if memory < 0 or its < 0:  # the call that produced it is unknown
        return CallDifference("changed", 0, a_call, b_call)
    a_record, b_record = left.memories.get(memory), right.memories.get(its)
    if a_record is None or b_record is None:
        return CallDifference("outside", 0, a_call, b_call)
    if not a_record.threads and not b_record.threads:
        if a_record.maker.name in UNFILLED and b_record.maker.name in UNFILLED:
            return CallDifference("unfilled", 0, a_call, b_call, a_record.maker)
        return CallDifference("changed", 0, a_call, b_call, a_record.last)
    # Check whether a thread wrote different values, or whether all wrote the same values in a different order.
    a_writes, b_writes = (
        [_apart_from(call, where) for call in side.threads] for side, where in ((a_record, memory), (b_record, its))
    )
    if sorted(map(_content, a_writes)) == sorted(map(_content, b_writes)):
        turns = zip(a_record.threads, a_writes, b_writes, strict=True)
        raced = next((call for call, a, b in turns if _content(a) != _content(b)), None)
        if raced is not None:
            return CallDifference("race", 0, a_call, b_call, raced)
    waiting = list(b_writes)
    for call in a_writes:
        match = next((it for it in waiting if (it.thread, it.op, it.line) == (call.thread, call.op, call.line)), None)
        if match is not None:
            waiting.remove(match)
            difference = _between(call, match, left, right, seen)
            if difference is not None:
                return difference
    return CallDifference("changed", 0, a_call, b_call, a_record.threads[0] if a_record.threads else a_record.last)


def _apart_from(call: CallRecord, memory: int) -> CallRecord:
    """Return the call without its inputs from `memory` and without the digests of its results in this memory.

    Several threads write to the memory.
    """
    inputs = tuple(tensor for tensor in call.tensors if tensor[0] != memory)
    return replace(
        call, tensors=inputs, written=(), results=tuple((m, "" if m == memory else d) for m, d in call.results)
    )


def _content(call: CallRecord) -> tuple[int, str, str, str, str]:
    """Return the facts that identify a thread's call, without the numbers of its memory, which depend on chance."""
    return call.thread, call.op, call.line, call.numbers, " ".join(digest for _, digest in call.tensors)


def _is_unfilled(side: _Side, memory: int) -> bool:
    record = side.memories.get(memory)
    return record is not None and record.last.name in UNFILLED


def _unequal(a_numbers: str, b_numbers: str) -> tuple[str, str]:
    """Return the first pair of numbers, one from each call, that differ."""
    for a_number, b_number in zip_longest(a_numbers.split(", "), b_numbers.split(", "), fillvalue=""):
        if a_number != b_number:
            return a_number, b_number
    return "", ""
