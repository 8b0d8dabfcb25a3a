"""Ops that one side keeps whole and the other takes apart, and how likely that is to change numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .op_counts import FLOATS
from .op_kinds import ARITHMETIC, kind_of_name, role_of
from .paired_ops import Op, computing
from .pairing import Matched


@dataclass(frozen=True)
class Decomposed:
    """All calls of one op that `whole` (`a` or `b`) has as one op and the other side as several."""

    op: str
    whole: str
    calls: Sequence[Matched]

    @cached_property
    def phases(self) -> Sequence[tuple[str, int]]:
        """How often in which phase, the phase with most calls first."""
        return Counter(one.first.phase for one in self.calls).most_common()

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The ops that it is taken apart into, in their order: those of most calls where calls differ."""
        return Counter(tuple(op.node.op for op in computing(self._apart(one))) for one in self.calls).most_common(1)[0][
            0
        ]

    @cached_property
    def called(self) -> bool:
        """Whether the parts are known to come from a call of the op, not only to do the same work."""
        return all(
            op.node.original and kind_of_name(op.node.original) == self.op
            for one in self.calls
            for op in computing(self._apart(one))
        )

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """Smaller for what changes numbers more surely: see `_weight`."""
        return (min(_weight(self._apart(one)) for one in self.calls), -len(self.calls))

    def _apart(self, one: Matched) -> Sequence[Op]:
        return one.b if self.whole == "a" else one.a


def decomposed(pairs: Sequence[Matched]) -> list[Decomposed]:
    """The decomposed ops, what changes numbers most surely first."""
    found: dict[tuple[str, str], list[Matched]] = {}
    for one in pairs:
        if one.kind != "group" or _is_list(one):
            continue
        a, b = computing(one.a), computing(one.b)
        if len(a) != len(b) and min(len(a), len(b)) == 1:
            found.setdefault((one.stands_for, "a" if len(a) == 1 else "b"), []).append(one)
    made = [Decomposed(op, whole, calls) for (op, whole), calls in found.items()]
    return sorted(made, key=lambda one: (*one.rank, one.op, one.whole))


def _is_list(one: Matched) -> bool:
    """Whether it is one `_foreach_` node against the same op once a tensor: as many roundings."""
    return len({op.kind for op in (*one.a, *one.b)}) == 1


def _weight(ops: Sequence[Op]) -> int:
    """What taking an op apart into these does to rounding.

    0: elementwise arithmetic that adds to or subtracts from what another of the parts has rounded (1 - y *
    y): that cancels, and a kernel of the whole op can contract it into one rounding. 1: other elementwise
    arithmetic with several roundings. 2: reductions, whose order of summation is a kernel's own. 3: matrix
    products and what else has a kernel of its own on both sides. 4: not floating point."""
    parts = computing(ops)
    roles = {role_of(op.kind) for op in parts}
    if not any(op.value.dtype in ("", *FLOATS) for op in parts):
        return 4
    if roles & {"product", "compute"}:
        return 3
    if "reduction" in roles:
        return 2
    rounded = {op.number for op in parts if op.kind in ARITHMETIC}
    sums = [op for op in parts if op.kind in ("add", "sub")]
    return 0 if any(one.source in rounded for op in sums for one in op.takes) else 1
