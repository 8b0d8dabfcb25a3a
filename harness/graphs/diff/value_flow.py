"""The ops of one side as units with data flow between them: a unit is one op, or the ops of one decomposed call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from .op_kinds import gathers, kind_of_name, passes_through, role_of
from .paired_ops import Op, Source, TakenPair

GroupId = tuple[int, str]

MIXED = -1
"""The slot of what a group takes: which of the inputs of the whole op it is cannot be told."""


@dataclass(slots=True)
class Unit:
    """`ops` are its numbers in the order of their execution. `taken` are the units that it takes from, each
    with its slot; `given` are those that take from it. `labels` are the script's names for what it takes,
    `names` those for what it makes."""

    number: int
    kind: str
    ops: tuple[Op, ...]
    taken: list[tuple[int, int]] = field(default_factory=list)
    given: list[tuple[int, int]] = field(default_factory=list)
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def first(self) -> Op:
        return self.ops[0]

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """The shape of its first result; of a product up to transposition, of a group it is not known."""
        shape = self.ops[-1].value.shape
        if shape is None or self.grouped:
            return None
        # A compiler may compute a product transposed, (B'A')' for AB, and the sizes stand the other way round.
        return tuple(sorted(shape, key=str)) if role_of(self.kind) == "product" else shape

    @property
    def grouped(self) -> bool:
        return len(self.ops) > 1 or self.kind != self.first.kind


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """`unit_of` gives the unit of an op, by its number; ops that only pass a value on may be in none."""

    units: Sequence[Unit]
    unit_of: Sequence[int | None]


def flow_of(ops: Sequence[Op], whole: Callable[[Op], str | None], *, views: bool) -> ValueFlow:
    """Make units of the ops. `whole` gives the kind of the group that an op is to be seen as part of; with
    `views` those that only pass a value on are units as well, else the edges go through them."""
    members: dict[GroupId | int, list[Op]] = {}
    kinds: dict[GroupId | int, str] = {}
    for op in ops:
        group = whole(op)
        if group is None and not views and passes_through(op.kind):
            continue
        key: GroupId | int = op.number if group is None or op.group is None else op.group
        members.setdefault(key, []).append(op)
        kinds[key] = group or op.kind
    units = [Unit(number, kinds[key], tuple(of)) for number, (key, of) in enumerate(members.items())]
    unit_of: list[int | None] = [None] * len(ops)
    for unit in units:
        for op in unit.ops:
            unit_of[op.number] = unit.number
    # What the value of an op in no unit was before it was passed on; ops come after what they take from.
    beyond: list[tuple[Source, ...]] = [()] * len(ops)
    names: dict[int, list[str]] = {}
    for op in ops:
        if unit_of[op.number] is None:
            passed = op.takes if gathers(op.kind) else [one for one in op.takes if one.slot == 0]
            beyond[op.number] = tuple(source for one in passed for source in _through(one, beyond, unit_of))
        # The script's name for what a view gives is the name of what the view looks at.
        for at in beyond[op.number] if unit_of[op.number] is None else (op.number,):
            if op.gives and isinstance(at, int) and not gathers(op.kind):
                names.setdefault(at, []).extend(op.gives)
    for unit in units:
        labels: list[str] = []
        for op in unit.ops:
            for one in op.takes:
                for slot, source in enumerate(_through(one, beyond, unit_of), one.slot):
                    if isinstance(source, str):
                        labels.append(source)
                    elif (maker := unit_of[source]) is not None and maker != unit.number:
                        where = MIXED if unit.grouped else slot
                        unit.taken.append((maker, where))
                        units[maker].given.append((unit.number, where))
        unit.labels = tuple(sorted(labels))
        unit.names = tuple(sorted({one for op in unit.ops for one in names.get(op.number, ())}))
    return ValueFlow(units, unit_of)


def _through(
    taken: TakenPair, beyond: Sequence[tuple[Source, ...]], unit_of: Sequence[int | None]
) -> tuple[Source, ...]:
    if isinstance(taken.source, str) or unit_of[taken.source] is not None:
        return (taken.source,)
    return beyond[taken.source]


def wholes_of(ops: Sequence[Op], present: Collection[str]) -> Callable[[Op], str | None]:
    """See the ops of a decomposed call as one where `present` has an op of that kind; each op by itself elsewhere."""
    kind_of_group: dict[GroupId, str | None] = {}
    for op in ops:
        if op.group is not None and op.group not in kind_of_group:
            kind = kind_of_name(op.node.original) if op.node.original else op.kind  # the op itself, which does not say
            seen_whole = kind in present and not passes_through(kind)
            kind_of_group[op.group] = kind if seen_whole else None
    return lambda op: None if op.group is None else kind_of_group[op.group]


def kinds_in(ops: Sequence[Op]) -> set[str]:
    """Every kind of op that is there, also as a group that is decomposed."""
    originals = {op.node.original for op in ops if op.group is not None and op.node.original}
    return {op.kind for op in ops} | {kind_of_name(one) for one in originals}
