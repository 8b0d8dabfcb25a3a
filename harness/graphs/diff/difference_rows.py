"""The pairs of a difference as the rows of a table: what says the same is one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..run_graphs import RunGraphs
from .difference_record import MINOR_ROLES, Diff, GraphPlace, NodePair, OpCount
from .op_counts import phase_place

Ops = Mapping[tuple[str, str], str]
"""The op of a node, by its graph and name."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """Pairs of one kind: `a` and `b` are the ops of each side in their order, `count` says how many such
    pairs there are, `modules` where they are."""

    kind: str
    phase: str
    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    count: int
    modules: Sequence[str]


def pair_rows(diff: Diff, a: RunGraphs, b: RunGraphs, *, everything: bool = False) -> list[PairRow]:
    """The pairs that are not an op against the same op, those of several ops first; with `everything` also
    what only passes values on."""
    ops = (_ops(a, diff.a.graphs), _ops(b, diff.b.graphs))
    found: dict[tuple[str, str, str, tuple[str, ...], tuple[str, ...]], list[NodePair]] = {}
    for pair in diff.pairs:
        if pair.kind == "same" or (pair.role in MINOR_ROLES and not everything):
            continue
        key = (pair.kind, pair.phase, pair.what, _of(ops[0], pair.a), _of(ops[1], pair.b))
        found.setdefault(key, []).append(pair)
    rows = [
        PairRow(*key, len(pairs), list(dict.fromkeys(one.module for one in pairs if one.module)))
        for key, pairs in found.items()
    ]
    order = ("group", "replaced", "only-a", "only-b")
    return sorted(rows, key=lambda row: (order.index(row.kind), phase_place(row.phase), -row.count))


def count_rows(diff: Diff, *, everything: bool = False) -> list[OpCount]:
    """The op counts that differ, without those of what changes no number; with `everything` all of them."""
    return [one for one in diff.counts if everything or (one.a != one.b and one.role not in MINOR_ROLES)]


def _of(ops: Ops, places: Sequence[GraphPlace]) -> tuple[str, ...]:
    return tuple(ops.get((place.graph, place.node), place.node) for place in places)


def _ops(graphs: RunGraphs, names: Sequence[str]) -> Ops:
    return {(name, node.name): node.op for name in names for node in graphs.graph(name).nodes}
