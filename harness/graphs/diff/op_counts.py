"""How often each op is on each side, and the dtype casts that one side has alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from ...records.graph_record import PHASES
from .difference_record import Cast, GraphPlace, OpCount
from .op_kinds import role_of, spelled
from .paired_ops import Op

FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")

CastKey = tuple[str, str, str]
"""Phase, dtype before, dtype after."""


def count_ops(a: Sequence[Op], b: Sequence[Op]) -> list[OpCount]:
    """The counts of every op of either side, by phase, what differs most first."""
    counted = [Counter((op.phase, op.kind) for op in ops) for ops in (a, b)]
    keys = sorted(
        counted[0] | counted[1],
        key=lambda key: (phase_place(key[0]), -abs(counted[0][key] - counted[1][key]), key[1]),
    )
    return [
        OpCount(phase, spelled(kind), counted[0][phase, kind], counted[1][phase, kind], role_of(kind))
        for phase, kind in keys
    ]


def casts_on_one_side(a: Sequence[Op], b: Sequence[Op], alone: Collection[int]) -> list[Cast]:
    """The casts that a side has more often than the other. `alone` are the `id`s of ops without a partner: of
    the casts of one kind, they are the ones that are named."""
    found = (_casts(a), _casts(b))
    casts = []
    for side, ops_of, others in (("a", found[0], found[1]), ("b", found[1], found[0])):
        for key, ops in ops_of.items():
            more = len(ops) - len(others.get(key, ()))
            if more > 0:
                named = sorted(ops, key=lambda op: (id(op) not in alone, op.number))[:more]
                places: tuple[GraphPlace, ...] = tuple(op.place for op in named)
                casts.append(Cast(side, *key, more, places))
    return sorted(casts, key=lambda one: (phase_place(one.phase), one.side, one.from_dtype, one.to_dtype))


def phase_place(phase: str) -> int:
    return PHASES.index(phase) if phase in PHASES else len(PHASES)


def _casts(ops: Sequence[Op]) -> Mapping[CastKey, list[Op]]:
    found: dict[CastKey, list[Op]] = defaultdict(list)
    for op in ops:
        before = _before(op)
        if before and op.value.dtype and op.value.dtype != before:
            found[op.phase, before, op.value.dtype].append(op)
    return found


def _before(op: Op) -> str:
    """The dtype that an op casts from: any for a cast, a float of its inputs for another op that makes a
    float."""
    if role_of(op.kind) == "cast":
        return op.dtypes[0] if op.dtypes else ""
    floats = [dtype for dtype in op.dtypes if dtype in FLOATS]
    return floats[0] if floats and op.value.dtype in FLOATS and op.value.dtype not in floats else ""
