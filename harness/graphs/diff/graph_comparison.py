"""Two runs' graphs held against each other: what `graph diff` shows."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphsNotFound, nearest
from ..run_graphs import RunGraphs
from .answers import answers
from .difference_record import Diff, NodePair
from .op_counts import casts_on_one_side, count_ops
from .op_kinds import role_of, spelled
from .paired_ops import Op, ops_of
from .pairing import Matched, pair_ops
from .post_differences import compare_post
from .step_pairing import common_step, executed_step


def compare_graphs(a: RunGraphs, b: RunGraphs, *, step: int | None = None, phase: str | None = None) -> Diff:
    """Compare one step of two runs, the lowest that both have, or `step`; only a phase of it, with `phase`.

    Raises GraphsNotFound for a step or phase that is not there, JournalError for a graph that cannot be read.
    """
    chosen = common_step(a, b) if step is None else step
    steps = (executed_step(a, chosen), executed_step(b, chosen))
    ops = (ops_of(steps[0].ops), ops_of(steps[1].ops))
    matched = pair_ops(*ops)
    if phase is not None:
        _refuse_unknown(phase, ops)
        matched = [one for one in matched if one.first.phase == phase]
        ops = tuple([op for op in side if op.phase == phase] for side in ops)  # type: ignore[assignment]
    sides = (steps[0].side(a), steps[1].side(b))
    alone = {id(op) for one in matched if one.kind.startswith("only-") for op in (*one.a, *one.b)}
    casts = casts_on_one_side(*ops, alone)
    posts = tuple([one for one in each.post if phase in (None, *one.phases)] for each in steps)
    post = compare_post(*posts) if _same_compiler(a, b) and all(posts) else None
    return Diff(
        a=sides[0],
        b=sides[1],
        answers=answers(_names(a, b), sides, matched, casts, (posts[0], posts[1]), post),
        counts=count_ops(*ops),
        pairs=[_pair(one) for one in matched],
        casts=casts,
        post_changed=None if post is None else bool(post),
    )


def _refuse_unknown(phase: str, ops: tuple[Sequence[Op], Sequence[Op]]) -> None:
    known = dict.fromkeys(op.phase for side in ops for op in side if op.phase)
    if phase not in known:
        raise GraphsNotFound(f"neither run has a graph of phase {phase}: {nearest(phase, known)}")


def _names(a: RunGraphs, b: RunGraphs) -> tuple[str, str]:
    """What the sides are called: their modes, else what tells them apart."""
    one, other = a.run.manifest, b.run.manifest
    for names in ((one.mode, other.mode), (one.label, other.label), (a.run.path.name, b.run.path.name)):
        if names[0] != names[1]:
            return names
    return "A", "B"


def _same_compiler(a: RunGraphs, b: RunGraphs) -> bool:
    return _base(a) == _base(b)


def _base(graphs: RunGraphs) -> str:
    return graphs.run.manifest.spec.partition(",")[0].rpartition("=")[2]


def _pair(one: Matched) -> NodePair:
    first = one.first
    return NodePair(
        kind=one.kind,
        phase=first.phase,
        what=spelled(one.stands_for),
        a=tuple(dict.fromkeys(op.place for op in one.a)),
        b=tuple(dict.fromkeys(op.place for op in one.b)),
        by=one.by,
        module=next((op.node.module for op in (*one.a, *one.b) if op.node.module is not None), None),
        role=role_of(one.stands_for),
    )
