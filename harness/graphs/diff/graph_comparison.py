"""The comparison of two runs' graphs that `graph diff` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import GraphsNotFound, nearest
from ..run_graphs import RunGraphs
from .answers import answers
from .difference_record import MINOR_ROLES, Diff, GraphPlace, NodePair, OpCount, phase_place
from .op_kinds import role_of, spelled
from .paired_ops import casts_on_one_side, count_ops, ops_of
from .pairing import pair_ops
from .step_pairing import common_step, compare_post, executed_step


def compare_graphs(a: RunGraphs, b: RunGraphs, *, step: int | None = None, phase: str | None = None) -> Diff:
    """Compare one step of two runs: `step`, or else the lowest common step. With `phase`, compare only that phase.

    Raises GraphsNotFound for a missing step or phase, and JournalError for a graph that cannot be read.
    """
    chosen = common_step(a, b) if step is None else step
    steps = (executed_step(a, chosen), executed_step(b, chosen))
    ops = (ops_of(steps[0].ops), ops_of(steps[1].ops))
    # All phases are paired even if only one is requested: backward ops are recognized by their forward ops.
    matched = pair_ops(*ops)
    if phase is not None:
        phases = dict.fromkeys(op.phase for side in ops for op in side if op.phase)
        if phase not in phases:
            raise GraphsNotFound(f"neither run has a graph of phase {phase}: {nearest(phase, phases)}")
        matched = [pair for pair in matched if pair.first.phase == phase]
        ops = tuple([op for op in side if op.phase == phase] for side in ops)  # type: ignore[assignment]
    alone = {id(op) for pair in matched if pair.kind.startswith("only-") for op in (*pair.a, *pair.b)}
    casts = casts_on_one_side(*ops, alone)
    # Compiled graphs are compared only if the same compiler made both. `x=compile,fullgraph` has the compiler
    # `compile`.
    posts = tuple([graph for graph in executed.post if phase in (None, *graph.phases)] for executed in steps)
    bases = {graphs.run.manifest.spec.partition(",")[0].rpartition("=")[2] for graphs in (a, b)}
    post = compare_post(*posts) if len(bases) == 1 and all(posts) else None
    # The sides are named by their modes if these differ, else by their labels or folders.
    manifest_a, manifest_b = a.run.manifest, b.run.manifest
    called = (
        (manifest_a.mode, manifest_b.mode),
        (manifest_a.label, manifest_b.label),
        (a.run.path.name, b.run.path.name),
    )
    names = next((pair for pair in called if pair[0] != pair[1]), ("A", "B"))
    sides = (steps[0].side(a), steps[1].side(b))
    pairs = [
        NodePair(
            kind=pair.kind,
            phase=pair.first.phase,
            what=spelled(pair.represents),
            a=tuple(dict.fromkeys(op.place for op in pair.a)),
            b=tuple(dict.fromkeys(op.place for op in pair.b)),
            by=pair.by,
            module=next((op.node.module for op in (*pair.a, *pair.b) if op.node.module is not None), None),
            role=role_of(pair.represents),
        )
        for pair in matched
    ]
    sentences = answers(names, sides, matched, casts, (posts[0], posts[1]), post)
    changed = None if post is None else bool(post)
    return Diff(sides[0], sides[1], sentences, count_ops(*ops), pairs, casts, changed)


# The pairs of a difference as the rows of a table. Equal pairs share one row.

Ops = Mapping[tuple[str, str], str]
"""The op of a node, by its graph and name."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """Equal pairs as one row.

    a, b: the ops of each side, in order
    count: the number of such pairs
    modules: the modules of these pairs
    """

    kind: str
    phase: str
    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    count: int
    modules: Sequence[str]


def pair_rows(diff: Diff, a: RunGraphs, b: RunGraphs, *, everything: bool = False) -> list[PairRow]:
    """Return the pairs that differ as rows, those with several ops on a side first.

    Only with `everything` include ops that change no number by themselves.
    """
    ops = (_ops(a, diff.a.graphs), _ops(b, diff.b.graphs))
    pairs_by_key: dict[tuple[str, str, str, tuple[str, ...], tuple[str, ...]], list[NodePair]] = {}
    for pair in diff.pairs:
        if pair.kind == "same" or (pair.role in MINOR_ROLES and not everything):
            continue
        key = (pair.kind, pair.phase, pair.what, _of(ops[0], pair.a), _of(ops[1], pair.b))
        pairs_by_key.setdefault(key, []).append(pair)
    rows = [
        PairRow(*key, len(pairs), list(dict.fromkeys(pair.module for pair in pairs if pair.module)))
        for key, pairs in pairs_by_key.items()
    ]
    order = ("group", "replaced", "only-a", "only-b")
    return sorted(rows, key=lambda row: (order.index(row.kind), phase_place(row.phase), -row.count))


def count_rows(diff: Diff, *, everything: bool = False) -> list[OpCount]:
    """Return the op counts that differ, without ops that change no number by themselves.

    With `everything`, return all op counts.
    """
    return [count for count in diff.counts if everything or (count.a != count.b and count.role not in MINOR_ROLES)]


def _of(ops: Ops, places: Sequence[GraphPlace]) -> tuple[str, ...]:
    return tuple(ops.get((place.graph, place.node), place.node) for place in places)


def _ops(graphs: RunGraphs, names: Sequence[str]) -> Ops:
    return {(name, node.name): node.op for name in names for node in graphs.graph(name).nodes}
