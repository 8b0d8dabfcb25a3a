"""Which outputs of an execution depend on random numbers that Inductor's own generator drew, which only
Inductor draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...tape.tape import Call, Tape, View, leaves, views_in

INDUCTOR_RANDOM = "inductor_rand"
"""In the names of the ops that draw by it: `prims.inductor_random`, `prims.inductor_randint`."""


def draws_own(call: Call) -> bool:
    return INDUCTOR_RANDOM in call.op


def outputs_of_own_draws(tape: Tape) -> frozenset[str]:
    """The names of the watched values that such a draw goes into, by whatever storage it reaches."""
    reached: set[int] = set()
    for call in tape.calls:
        if draws_own(call) or any(view.slot in reached for view in views_in(call)):
            reached.update(view.slot for view in _made(call))
    return frozenset(one.name for one in tape.watched if one.view.slot in reached)


def _made(call: Call) -> Iterator[View]:
    """What a call gives, and what it writes without giving it."""
    yield from _views(call.outputs)
    if call.name.endswith("_"):
        yield from _views(call.arguments[:1])


def _views(values: Iterable[Any]) -> Iterator[View]:
    return (one for value in values for one in leaves(value) if isinstance(one, View))
