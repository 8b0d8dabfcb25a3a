"""The place in the script of a kernel that computes several ops."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.graph_record import Node


def kernel_place(covered: Sequence[Node]) -> Node:
    """The innermost module that all of these ops are in, the last line that is known, and the autograd sequence number
    that all of them have; without a name, inputs and outputs."""
    paths = (one.module for one in covered)
    known = [one.split(".") if one else [] for one in paths if one is not None]
    common = []
    for parts in zip(*known, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    last = next((one for one in reversed(covered) if one.source), None)
    return Node(
        name="",
        op="",
        module=".".join(common) if known else None,
        source="" if last is None else last.source,
        stack="" if last is None else last.stack,
        sequence=covered[0].sequence if len({one.sequence for one in covered}) == 1 else None,
    )
