"""The difference in plain words, the most important sentence first.

What can change the numbers of the training comes before what cannot: an op that one side computes whole and
the other in several roundings, ops that one side has alone, what both compute by kernels of their own, casts;
then how many graphs a step executes, and how much of it is fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence

from ...records.graph_record import Graph, Node
from .decomposed import Decomposed, decomposed
from .difference_record import Cast, GraphPlace, Side
from .op_counts import FLOATS, phase_place
from .op_kinds import computes, kind_of_name, role_of
from .paired_ops import Op, computing
from .pairing import Matched
from .post_differences import PostChange

SHOWN = 6
"""Ops that are named in one sentence; more are counted."""

STRUCTURAL = 3
"""From this weight on a decomposition comes after the ops that one side has alone."""


def answers(
    names: tuple[str, str],
    sides: tuple[Side, Side],
    pairs: Sequence[Matched],
    casts: Sequence[Cast],
    posts: tuple[Sequence[Graph], Sequence[Graph]],
    post: PostChange | None,
) -> list[str]:
    """The sentences; `names` are what the sides are called, `post` how the compiled graphs differ, if that is
    known."""
    apart = decomposed(pairs)
    said = list(_compiled(names, pairs, apart, post))
    said += [_whole(names, one) for one in apart if one.rank[0] < STRUCTURAL]
    said += _alone(names, sides, pairs, floating=True)
    said += _replaced(names, pairs)
    said += [_whole(names, one) for one in apart if one.rank[0] >= STRUCTURAL]
    said += _casts(names, casts)
    said += _alone(names, sides, pairs, floating=False)
    if not said:
        said.append(f"{names[0]} and {names[1]} compute the same ops{_apart_from(pairs)}.")
    said += _unpaired(pairs)
    said += _graphs(names, sides)
    said += _fusion(names, pairs, posts)
    return said


def _compiled(
    names: tuple[str, str], pairs: Sequence[Matched], apart: Sequence[Decomposed], post: PostChange | None
) -> Iterator[str]:
    """What a changed pre graph did to the post graph, where both sides have the same compiler."""
    if post is None:
        return
    whole = [f"{one.op} is one node in {names[one.whole == 'b']}" for one in apart]
    other = [f"{names[1]} has {b} where {names[0]} has {a}" for a, b in _exchanged(pairs)]
    why = "; ".join([*whole, *other][:SHOWN])
    if all(one.kind == "same" for one in pairs):
        before = "The pre graphs are the same"
    else:
        before = f"The pre graph differs ({why})" if why else "The pre graph differs"
    if not post:
        yield f"{before}, the post graphs are the same."
        return
    kernels = "; ".join(
        f"only {name} has {_listed(Counter(only))}"
        for name, only in zip(names, (post.only_a, post.only_b), strict=True)
        if only
    )
    yield f"{before}, the post graphs differ: {kernels}."


def _whole(names: tuple[str, str], one: Decomposed) -> str:
    keeps, takes = names if one.whole == "a" else names[::-1]
    parts = ", ".join(one.parts)
    if one.rank[0] < STRUCTURAL or one.called:
        return f"{keeps} keeps {one.op} whole ({_times(one.phases)}), {takes} decomposes it into {parts}."
    return f"{keeps} has {one.op} ({_times(one.phases)}) where {takes} has {parts}."


def _fallbacks(side: Side) -> frozenset[str]:
    """The kinds of ops that a side ran outside of its graphs."""
    return frozenset(kind_of_name(cut.removeprefix("fallback ")) for cut in side.cuts if cut.startswith("fallback "))


def _alone(
    names: tuple[str, str], sides: tuple[Side, Side], pairs: Sequence[Matched], *, floating: bool
) -> Iterator[str]:
    """The computing ops that only one side has; those that both have left over found no partner, nothing
    more."""
    chosen = [one for one in pairs if _is_floating(one.first) == floating]
    for kind, other_kind, (name, other), side in (
        ("only-a", "only-b", names, sides[1]),
        ("only-b", "only-a", names[::-1], sides[0]),
    ):
        steps = [one for one in chosen if side.cuts and _is_step_count(one.first)]
        rest = [one for one in chosen if not (side.cuts and _is_step_count(one.first))]
        outside: Counter[tuple[str, str]] = Counter()
        fallbacks = _fallbacks(side)
        by_phase: dict[str, Counter[str]] = {}
        for (phase, op), count in (_left_over(rest, kind) - _left_over(rest, other_kind)).items():
            if op in fallbacks:
                outside[phase, op] += count
            else:
                by_phase.setdefault(phase, Counter())[op] = count
        outside.update(_left_over(steps, kind))
        for (phase, op), count in outside.items():
            yield f"{other} runs {op} outside of its graphs, {name} has it {_times([(phase, count)])}."
        for phase, ops in sorted(by_phase.items(), key=lambda item: phase_place(item[0])):
            yield f"Only {name} has {_listed(ops)}{f' in the {phase}' if phase else ''}."


def _is_step_count(op: Op) -> bool:
    """Whether it makes a number for an optimizer alone, as its count of steps: that is on the CPU, in no lazy
    graph."""
    of_model = any(isinstance(one.source, str) for one in op.takes) or op.gives
    return op.phase == "optimizer" and op.value.shape == () and not of_model and role_of(op.kind) == "elementwise"


def _is_floating(op: Op) -> bool:
    return op.value.dtype in ("", *FLOATS)


def _left_over(pairs: Sequence[Matched], kind: str) -> Counter[tuple[str, str]]:
    """By phase and op; the ops of one decomposed call are counted once, as parts of what was called."""
    found: dict[Hashable, tuple[str, str]] = {}
    for one in pairs:
        first = one.first
        if one.kind != kind or not computes(one.stands_for):
            continue
        called = kind_of_name(first.node.original) if first.node.original else first.kind
        if first.group is None or called == first.kind:
            found[first.call] = (first.phase, one.stands_for)
        else:
            found[first.group] = (first.phase, f"parts of {called}")
    return Counter(found.values())


def _unpaired(pairs: Sequence[Matched]) -> Iterator[str]:
    both: Counter[str] = Counter()
    for (_, op), count in (_left_over(pairs, "only-a") & _left_over(pairs, "only-b")).items():
        both[op] += count
    if both:
        yield f"{_listed(both, ' on each side')} could not be paired."


def _replaced(names: tuple[str, str], pairs: Sequence[Matched]) -> Iterator[str]:
    for (a, b), count in sorted(_exchanged(pairs).items(), key=lambda item: (-item[1], item[0])):
        yield f"{names[0]} has {a} where {names[1]} has {b} ({_count(count)})."


def _exchanged(pairs: Sequence[Matched]) -> Counter[tuple[str, str]]:
    """What does the same work by other ops: one against one, or several against several."""
    found: Counter[tuple[str, str]] = Counter()
    for one in pairs:
        a, b = (tuple(op.kind for op in computing(ops)) for ops in (one.a, one.b))
        decomposed = len(a) != len(b) and min(len(a), len(b)) == 1
        if one.kind in ("replaced", "group") and a and b and a != b and not decomposed:
            found[", ".join(a), ", ".join(b)] += 1
    return found


def _casts(names: tuple[str, str], casts: Sequence[Cast]) -> Iterator[str]:
    for one in casts:
        where = f" in the {one.phase}" if one.phase else ""
        yield (f"Only {names[one.side == 'b']} casts {one.from_dtype} to {one.to_dtype}{where} ({_count(one.count)}).")


def _graphs(names: tuple[str, str], sides: tuple[Side, Side]) -> Iterator[str]:
    if sides[0].graphs_in_step == sides[1].graphs_in_step and sides[0].cuts == sides[1].cuts:
        return
    counted = []
    for name, side in zip(names, sides, strict=True):
        if side.compiles:
            graphs = f"{side.graphs_in_step:,} graph{'' if side.graphs_in_step == 1 else 's'}"
            cut = f" (cut by {_listed(Counter(side.cuts))})" if side.cuts else ""
            counted.append(f"{name} executes {graphs}{cut}")
        else:
            counted.append(f"{name} runs op by op")
    yield f"In step {sides[0].step} {', '.join(counted)}."


def _fusion(
    names: tuple[str, str], pairs: Sequence[Matched], posts: tuple[Sequence[Graph], Sequence[Graph]]
) -> Iterator[str]:
    """How many of the computing nodes that went into a compiler share a generated kernel with another one."""
    of_sides = ([op for one in pairs for op in one.a], [op for one in pairs for op in one.b])
    for name, ops, graphs in zip(names, of_sides, posts, strict=True):
        pre = {graph.pre for graph in graphs}
        compiled = [op for op in computing(ops) if op.place.graph in pre]
        places = {op.place for op in compiled}
        fused = [[held for node in graph.nodes if len(held := _computed(graph, node, places)) > 1] for graph in graphs]
        kernels = sum(map(len, fused))
        if kernels:
            held_once = sum(len(frozenset().union(*of_graph)) for of_graph in fused)
            yield (
                f"{name} fuses {held_once} of {len({op.call for op in compiled})} computing nodes of its compiled "
                f"graphs into {kernels} kernel{'' if kernels == 1 else 's'}; its post graphs have "
                f"{sum(len(graph.nodes) for graph in graphs)} kernels and library calls in all."
            )


def _computed(post: Graph, kernel: Node, known: Collection[GraphPlace]) -> frozenset[GraphPlace]:
    """The known nodes that a generated kernel computes; of a call into a library there are none."""
    generated = kernel.code and kernel.domain == "inductor"
    places = (GraphPlace(post.pre, name) for name in kernel.covers) if generated else ()
    return frozenset(place for place in places if place in known)


def _apart_from(pairs: Sequence[Matched]) -> str:
    differing = any(one.kind != "same" for one in pairs)
    return ", apart from views, fills and bookkeeping" if differing else ""


def _times(phases: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{_count(count)} in the {phase}" if phase else _count(count) for phase, count in phases)


def _listed(counts: Counter[str], each: str = "") -> str:
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} ({_count(count)}{each})" for name, count in found[:SHOWN]]
    more = len(found) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _count(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")
