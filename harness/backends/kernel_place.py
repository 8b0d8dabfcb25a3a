"""The site of a kernel that computes several ops."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.tools.graph_record import Node


def kernel_place(covered: Sequence[Node]) -> Node:
    """Return the site of a kernel for these ops as a node without name, inputs or outputs.

    The node's module is the innermost one that contains all of the ops. Its line is that of the last op whose line is
    known. Its autograd sequence number is the number that all of the ops share, None if their numbers differ.
    """
    paths = (node.module for node in covered)
    split_paths = [path.split(".") if path else [] for path in paths if path is not None]
    common = []
    for parts in zip(*split_paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    last = next((node for node in reversed(covered) if node.source), None)
    return Node(
        name="",
        op="",
        module=".".join(common) if split_paths else None,
        source="" if last is None else last.source,
        stack="" if last is None else last.stack,
        sequence=covered[0].sequence if len({node.sequence for node in covered}) == 1 else None,
    )
