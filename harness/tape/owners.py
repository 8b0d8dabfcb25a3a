"""Whose calls those outside of any module are: the parameters that an optimizer's op is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import torch_private
from .tape import Call, View, Watched, views_in

KINDS = ("parameter", "gradient", "state")


def owners_of(calls: Sequence[Call], watched: Sequence[Watched]) -> list[tuple[str, ...]]:
    """The parameters that each call touches, empty for those within a module and those that touch none.

    A call is about the parameters that it writes (their values, gradients or optimizer state), else about those
    that it reads, directly or through what earlier calls made of them.
    """
    owner = _slots_of_parameters(watched)
    found: list[tuple[str, ...]] = []
    for call in calls:
        if call.module is not None or call.phase == "forward":
            found.append(())
            continue
        operation = torch_private.registered_operation(call.op)
        writes = torch_private.written_values(operation, call.arguments, call.keywords)
        mine = _names(owner, writes) or _names(owner, views_in(call))
        found.append(mine)
        if mine:
            for output, fresh in zip(call.outputs, call.fresh, strict=True):
                if fresh:
                    owner.setdefault(output.slot, mine)
    return found


def _names(owner: dict[int, tuple[str, ...]], values: Iterable[Any]) -> tuple[str, ...]:
    slots = [value.slot for value in values if isinstance(value, View)]
    return tuple(dict.fromkeys(name for slot in slots for name in owner.get(slot, ())))


def _slots_of_parameters(watched: Sequence[Watched]) -> dict[int, tuple[str, ...]]:
    """The parameter behind each slot, by the names `parameter NAME`, `gradient N NAME` and `state NAME.KEY`."""
    owner: dict[int, tuple[str, ...]] = {}
    for one in watched:
        kind, _, rest = one.name.partition(" ")
        if kind not in KINDS:
            continue
        if kind == "gradient":
            rest = rest.partition(" ")[2]
        elif kind == "state":
            rest = rest.rpartition(".")[0]
        owner.setdefault(one.view.slot, (rest,))
    return owner
