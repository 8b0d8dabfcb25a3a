"""The difference in plain words, the most important sentence first.

What can change the numbers of the training comes before what cannot: an op that one side computes whole and
the other in several roundings, ops that one side has alone, what both compute by kernels of their own, casts;
then how many graphs a step executes, and how much of it is fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...records.graph_record import Graph
from .difference_record import Cast, GraphPlace, Side, phase_place
from .layout_copies import copies_on_one_side
from .op_kinds import ARITHMETIC, computes, kind_of_name, role_of
from .paired_ops import FLOATS, Op, computing
from .pairing import Matched
from .step_pairing import PostChange

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
    """The sentences; `names` are what the sides are called, `post` how the compiled graphs differ, if that is known."""
    apart = decomposed(pairs)
    said = list(_compiled(names, pairs, apart, post))
    # What can change numbers, the surest first.
    said += [_whole(names, one) for one in apart if one.rank[0] < STRUCTURAL]
    said += _alone(names, sides, pairs, floating=True)
    for (a, b), count in sorted(_exchanged(pairs).items(), key=lambda item: (-item[1], item[0])):
        said.append(f"{names[0]} has {a} where {names[1]} has {b} ({_count(count)}).")
    said += [_whole(names, one) for one in apart if one.rank[0] >= STRUCTURAL]
    for one in casts:
        where = f" in the {one.phase}" if one.phase else ""
        named = names[one.side == "b"]
        said.append(f"Only {named} casts {one.from_dtype} to {one.to_dtype}{where} ({_count(one.count)}).")
    said += _alone(names, sides, pairs, floating=False)
    if not said:
        minor = ", apart from views, fills and bookkeeping" if any(one.kind != "same" for one in pairs) else ""
        said.append(f"{names[0]} and {names[1]} compute the same ops{minor}.")
    said += _copies(names, pairs)
    # An op that both sides have left over is no difference, but one that the pairing could not decide.
    both: Counter[str] = Counter()
    for (_, op), count in (_left_over(pairs, "only-a") & _left_over(pairs, "only-b")).items():
        both[op] += count
    if both:
        said.append(f"{_listed(both, ' on each side')} could not be paired.")
    # What cannot change numbers: how a step is cut into graphs, and how much of them is fused.
    if sides[0].graphs_in_step != sides[1].graphs_in_step or sides[0].cuts != sides[1].cuts:
        counted = []
        for name, side in zip(names, sides, strict=True):
            if side.compiles:
                graphs = f"{side.graphs_in_step:,} graph{'' if side.graphs_in_step == 1 else 's'}"
                cut = f" (cut by {_listed(Counter(side.cuts))})" if side.cuts else ""
                counted.append(f"{name} executes {graphs}{cut}")
            else:
                counted.append(f"{name} runs op by op")
        said.append(f"In step {sides[0].step} {', '.join(counted)}.")
    return [*said, *_fusion(names, pairs, posts)]


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


def _alone(
    names: tuple[str, str], sides: tuple[Side, Side], pairs: Sequence[Matched], *, floating: bool
) -> Iterator[str]:
    """The computing ops that only one side has; those that both have left over found no partner, nothing more."""
    chosen = [one for one in pairs if (one.first.value.dtype in ("", *FLOATS)) == floating]
    for kind, other_kind, (name, other), side in (
        ("only-a", "only-b", names, sides[1]),
        ("only-b", "only-a", names[::-1], sides[0]),
    ):
        # The other side may have them and not show them: a lazy core runs an op that it lacks outside of its graphs,
        # and so is what counts an optimizer's steps, a number on the CPU.
        fallbacks = {kind_of_name(cut.removeprefix("fallback ")) for cut in side.cuts if cut.startswith("fallback ")}
        steps: list[Matched] = []
        rest: list[Matched] = []
        for one in chosen:
            op = one.first
            of_model = any(isinstance(taken.source, str) for taken in op.takes) or op.gives
            counts = op.phase == "optimizer" and op.value.shape == () and role_of(op.kind) == "elementwise"
            (steps if side.cuts and counts and not of_model else rest).append(one)
        outside: Counter[tuple[str, str]] = Counter()
        by_phase: dict[str, Counter[str]] = {}
        for (phase, name_of_op), count in (_left_over(rest, kind) - _left_over(rest, other_kind)).items():
            if name_of_op in fallbacks:
                outside[phase, name_of_op] += count
            else:
                by_phase.setdefault(phase, Counter())[name_of_op] = count
        outside.update(_left_over(steps, kind))
        for (phase, name_of_op), count in outside.items():
            yield f"{other} runs {name_of_op} outside of its graphs, {name} has it {_times([(phase, count)])}."
        for phase, ops in sorted(by_phase.items(), key=lambda item: phase_place(item[0])):
            yield f"Only {name} has {_listed(ops)}{f' in the {phase}' if phase else ''}."


def _left_over(pairs: Sequence[Matched], kind: str) -> Counter[tuple[str, str]]:
    """By phase and op; the ops of one decomposed call are counted once, as parts of what was called."""
    found: dict[Hashable, tuple[str, str]] = {}
    for one in pairs:
        first = one.first
        if one.kind != kind or not computes(one.stands_for):
            continue
        # `addmm` taken apart into `mm` and `add` is told as "parts of addmm", once a call and not once a part.
        called = kind_of_name(first.node.original) if first.node.original else first.kind
        if first.group is None or called == first.kind:
            found[first.call] = (first.phase, one.stands_for)
        else:
            found[first.group] = (first.phase, f"parts of {called}")
    return Counter(found.values())


def _copies(names: tuple[str, str], pairs: Sequence[Matched]) -> Iterator[str]:
    """What one side lays out anew before an op reads it, and the other does not."""
    copied = copies_on_one_side([op for one in pairs for op in one.a], [op for one in pairs for op in one.b])
    for name, other, found in zip(names, names[::-1], copied, strict=True):
        if found:
            readers: Counter[str] = Counter()
            for (phase, kind, _), count in found.items():
                readers[f"{kind} in the {phase}" if phase else kind] += count
            copies = " and ".join(dict.fromkeys(copy for _, _, copy in found))
            yield (
                f"{name} copies by {copies} what is read by {_listed(readers)}, and {other} does not: a copy changes "
                "no number, but for another layout the op that reads it may take another path in its library."
            )


def _exchanged(pairs: Sequence[Matched]) -> Counter[tuple[str, str]]:
    """What does the same work by other ops: one against one, or several against several."""
    found: Counter[tuple[str, str]] = Counter()
    for one in pairs:
        a, b = (tuple(op.kind for op in computing(ops)) for ops in (one.a, one.b))
        # One op against several is told as a decomposition, in a sentence of its own.
        decomposed = len(a) != len(b) and min(len(a), len(b)) == 1
        if one.kind in ("replaced", "group") and a and b and a != b and not decomposed:
            found[", ".join(a), ", ".join(b)] += 1
    return found


def _fusion(
    names: tuple[str, str], pairs: Sequence[Matched], posts: tuple[Sequence[Graph], Sequence[Graph]]
) -> Iterator[str]:
    """How many of the computing nodes that went into a compiler share a generated kernel with another one."""
    of_sides = ([op for one in pairs for op in one.a], [op for one in pairs for op in one.b])
    for name, ops, graphs in zip(names, of_sides, posts, strict=True):
        pre = {graph.pre for graph in graphs}
        compiled = [op for op in computing(ops) if op.place.graph in pre]
        places = {op.place for op in compiled}
        kernels = held_once = 0
        for graph in graphs:
            fused: set[GraphPlace] = set()
            for node in graph.nodes:
                # A call into a library covers a node, too, but it fuses nothing.
                generated = node.code and node.domain == "inductor"
                held = {GraphPlace(graph.pre, one) for one in node.covers} & places if generated else set()
                kernels += len(held) > 1
                fused |= held if len(held) > 1 else set()
            held_once += len(fused)
        if kernels:
            yield (
                f"{name} fuses {held_once} of {len({op.call for op in compiled})} computing nodes of its compiled "
                f"graphs into {kernels} kernel{'' if kernels == 1 else 's'}; its post graphs have "
                f"{sum(len(graph.nodes) for graph in graphs)} kernels and library calls in all."
            )


def _times(phases: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{_count(count)} in the {phase}" if phase else _count(count) for phase, count in phases)


def _listed(counts: Counter[str], each: str = "") -> str:
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} ({_count(count)}{each})" for name, count in found[:SHOWN]]
    more = len(found) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _count(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


# Ops that one side keeps whole and the other takes apart, and how likely that is to change numbers.


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
        found = Counter(tuple(op.node.op for op in computing(self._apart(one))) for one in self.calls)
        return found.most_common(1)[0][0]

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
        # One `_foreach_` node against the same op once a tensor is a group of one kind: as many roundings.
        if one.kind != "group" or len({op.kind for op in (*one.a, *one.b)}) == 1:
            continue
        a, b = computing(one.a), computing(one.b)
        if len(a) != len(b) and min(len(a), len(b)) == 1:
            found.setdefault((one.stands_for, "a" if len(a) == 1 else "b"), []).append(one)
    made = [Decomposed(op, whole, calls) for (op, whole), calls in found.items()]
    return sorted(made, key=lambda one: (*one.rank, one.op, one.whole))


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
