"""Copies of a tensor to a different layout, read by an op whose order of summation may depend on the layout.

lazy     weight -> t_copy -> addmm      the product reads a contiguous tensor
eager    weight -> t      -> addmm      the product reads a transposed view
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .op_kinds import passes_through, role_of
from .paired_ops import Op

TURNED = frozenset({"permute", "expand", "slice", "as_strided", "unfold"})
"""Kinds of views whose layout differs from the layout of their base."""

READERS = ("product", "reduction", "compute")
"""Roles of ops whose kernels sum in an order that depends on the layout."""

Copied = Counter[tuple[str, str, str]]
"""Counts by the reading op's phase and kind, and the name of the op that copies."""


def copies_on_one_side(a: Sequence[Op], b: Sequence[Op]) -> tuple[Copied, Copied]:
    """Return, for each side, the reads of layout copies that this side has more often than the other side."""
    reads = copies_read(a), copies_read(b)
    counts = [Counter[tuple[str, str]]() for _ in reads]
    for count, copied in zip(counts, reads, strict=True):
        for (phase, kind, _), times in copied.items():
            count[phase, kind] += times
    more = (counts[0] - counts[1], counts[1] - counts[0])
    return (
        Counter({key: times for key, times in reads[0].items() if key[:2] in more[0]}),
        Counter({key: times for key, times in reads[1].items() if key[:2] in more[1]}),
    )


def copies_read(ops: Sequence[Op]) -> Copied:
    """Count the ops of a side that read a copy to a different layout, each op once."""
    by_number = {op.number: op for op in ops}
    reads: Copied = Counter()
    for op in ops:
        if role_of(op.kind) not in READERS:
            continue
        copies = (_copy_behind(op_input.source, by_number) for op_input in op.takes)
        name = next((copy.node.op for copy in copies if copy is not None), None)
        if name is not None:
            reads[op.phase, op.kind, name] += 1
    return reads


def _copy_behind(source: int | str, by_number: dict[int, Op]) -> Op | None:
    """Return the op that made the copy, if a value is such a copy or a view of one; otherwise None."""
    while isinstance(source, int) and source in by_number:
        op = by_number[source]
        if not passes_through(op.kind):
            return None
        below = next((op_input.source for op_input in op.takes if not op_input.slot), None)
        seen = by_number.get(below) if isinstance(below, int) else None
        makes_view_a_copy = op.kind in TURNED and op.node.op.endswith("_copy")
        copies_view = op.kind == "clone" and seen is not None and seen.kind in TURNED
        if makes_view_a_copy or copies_view:
            return op
        source = "" if below is None else below
    return None
