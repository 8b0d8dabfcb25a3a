"""The ops of one side as units connected by data flow; a unit is one op, or all ops of one decomposed call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from .op_kinds import gathers, kind_of_name, passes_through, role_of
from .paired_ops import Op, Source, TakenPair

GroupId = tuple[int, str]

MIXED = -1
"""The slot of an input of a group, since it is not known which input of the whole op this is."""


@dataclass(slots=True)
class Unit:
    """One op, or the ops of one decomposed call in the order of their execution.

    reads: the units whose values this unit reads, each with the slot of the input
    readers: the units that read this unit's values, each with the slot of the input
    labels: the script's names for the unit's inputs
    names: the script's names for the unit's outputs
    """

    number: int
    kind: str
    ops: tuple[Op, ...]
    reads: list[tuple[int, int]] = field(default_factory=list)
    readers: list[tuple[int, int]] = field(default_factory=list)
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def first(self) -> Op:
        return self.ops[0]

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """The shape of the unit's first result; known up to transposition for a product, unknown for a group."""
        shape = self.ops[-1].value.shape
        if shape is None or self.grouped:
            return None
        # A compiler may compute a product transposed, (B'A')' for AB, with its sizes exchanged.
        return tuple(sorted(shape, key=str)) if role_of(self.kind) == "product" else shape

    @property
    def grouped(self) -> bool:
        return len(self.ops) > 1 or self.kind != self.first.kind


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """The units of a side. `unit_of[n]` is the number of op n's unit; None if the op only passes a value on."""

    units: Sequence[Unit]
    unit_of: Sequence[int | None]


def flow_of(ops: Sequence[Op], whole: Callable[[Op], str | None], *, views: bool) -> ValueFlow:
    """Create units from ops.

    `whole` returns the kind of the group that an op belongs to, None for a single op. With `views`, ops that only pass
    a value on are units, too; otherwise edges pass through them.
    """
    members: dict[GroupId | int, list[Op]] = {}
    kinds: dict[GroupId | int, str] = {}
    for op in ops:
        group = whole(op)
        if group is None and not views and passes_through(op.kind):
            continue
        key: GroupId | int = op.number if group is None or op.group is None else op.group
        members.setdefault(key, []).append(op)
        kinds[key] = group or op.kind
    units = [Unit(number, kinds[key], tuple(unit_ops)) for number, (key, unit_ops) in enumerate(members.items())]
    unit_of: list[int | None] = [None] * len(ops)
    for unit in units:
        for op in unit.ops:
            unit_of[op.number] = unit.number
    # The origins of the value that an op in no unit passes on. One pass suffices: ops come after the ops that they
    # read.
    beyond: list[tuple[Source, ...]] = [()] * len(ops)
    names: dict[int, list[str]] = {}
    for op in ops:
        if unit_of[op.number] is None:
            passed = op.takes if gathers(op.kind) else [op_input for op_input in op.takes if op_input.slot == 0]
            beyond[op.number] = tuple(source for op_input in passed for source in _through(op_input, beyond, unit_of))
        # A view's output name is the script's name for the viewed value.
        for at in beyond[op.number] if unit_of[op.number] is None else (op.number,):
            if op.gives and isinstance(at, int) and not gathers(op.kind):
                names.setdefault(at, []).extend(op.gives)
    for unit in units:
        labels: list[str] = []
        for op in unit.ops:
            for read_value in op.takes:
                for slot, source in enumerate(_through(read_value, beyond, unit_of), read_value.slot):
                    if isinstance(source, str):
                        labels.append(source)
                    elif (maker := unit_of[source]) is not None and maker != unit.number:
                        where = MIXED if unit.grouped else slot
                        unit.reads.append((maker, where))
                        units[maker].readers.append((unit.number, where))
        unit.labels = tuple(sorted(labels))
        unit.names = tuple(sorted({name for op in unit.ops for name in names.get(op.number, ())}))
    return ValueFlow(units, unit_of)


def _through(
    op_input: TakenPair, beyond: Sequence[tuple[Source, ...]], unit_of: Sequence[int | None]
) -> tuple[Source, ...]:
    if isinstance(op_input.source, str) or unit_of[op_input.source] is not None:
        return (op_input.source,)
    return beyond[op_input.source]


def wholes_of(ops: Sequence[Op], present: Collection[str]) -> Callable[[Op], str | None]:
    """Return the `whole` argument for `flow_of`.

    Ops of a decomposed call form a group only if `present` has the kind of the called op.
    """
    kind_of_group: dict[GroupId, str | None] = {}
    for op in ops:
        if op.group is not None and op.group not in kind_of_group:
            kind = kind_of_name(op.node.original) if op.node.original else op.kind  # no `original`: itself
            seen_whole = kind in present and not passes_through(kind)
            kind_of_group[op.group] = kind if seen_whole else None
    return lambda op: None if op.group is None else kind_of_group[op.group]


def kinds_in(ops: Sequence[Op]) -> set[str]:
    """Return every kind of op, including the kinds of decomposed groups."""
    originals = {op.node.original for op in ops if op.group is not None and op.node.original}
    return {op.kind for op in ops} | {kind_of_name(original) for original in originals}
