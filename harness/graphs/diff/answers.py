"""The difference in plain words, the most important sentence first.

Differences that can change the numbers of the training come first: an op that one side computes as a whole and the
other side with several roundings, ops on one side only, ops that each side computes with its own kernel, casts. The
number of graphs in a step, and the extent of fusion, follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...records.tools.graph_record import Graph
from .difference_record import Cast, GraphPlace, Side, phase_place
from .layout_copies import copies_on_one_side
from .op_kinds import ARITHMETIC, computes, kind_of_name, role_of
from .paired_ops import FLOATS, Op, computing
from .pairing import Matched
from .step_pairing import PostChange

SHOWN = 6
"""The maximum number of ops that one sentence names; further ops are only counted."""

STRUCTURAL = 3
"""Decompositions of at least this weight (see `_weight`) are reported after the ops that only one side has."""


def answers(
    names: tuple[str, str],
    sides: tuple[Side, Side],
    pairs: Sequence[Matched],
    casts: Sequence[Cast],
    posts: tuple[Sequence[Graph], Sequence[Graph]],
    post: PostChange | None,
) -> list[str]:
    """Return the sentences about a difference.

    `names` are the names of the sides. `post` is the difference between the compiled graphs, if known.
    """
    apart = decomposed(pairs)
    sentences = list(_compiled(names, pairs, apart, post))
    # Differences that can change numbers, the most certain first.
    sentences += [_whole(names, decomposition) for decomposition in apart if decomposition.rank[0] < STRUCTURAL]
    sentences += _alone(names, sides, pairs, floating=True)
    for (a, b), count in sorted(_exchanged(pairs).items(), key=lambda item: (-item[1], item[0])):
        sentences.append(f"{names[0]} has {a} where {names[1]} has {b} ({_count(count)}).")
    sentences += [_whole(names, decomposition) for decomposition in apart if decomposition.rank[0] >= STRUCTURAL]
    for cast in casts:
        where = f" in the {cast.phase}" if cast.phase else ""
        named = names[cast.side == "b"]
        sentences.append(f"Only {named} casts {cast.from_dtype} to {cast.to_dtype}{where} ({_count(cast.count)}).")
    sentences += _alone(names, sides, pairs, floating=False)
    if not sentences:
        minor = ", apart from views, fills and bookkeeping" if any(pair.kind != "same" for pair in pairs) else ""
        sentences.append(f"{names[0]} and {names[1]} compute the same ops{minor}.")
    sentences += _copies(names, pairs)
    # An op that is left over on both sides is not a difference: the pairing was ambiguous.
    both: Counter[str] = Counter()
    for (_, op), count in (_left_over(pairs, "only-a") & _left_over(pairs, "only-b")).items():
        both[op] += count
    if both:
        sentences.append(f"{_listed(both, ' on each side')} could not be paired.")
    # Differences that cannot change numbers: the cuts of a step into graphs, and the extent of fusion.
    if sides[0].graphs_in_step != sides[1].graphs_in_step or sides[0].cuts != sides[1].cuts:
        counted = []
        for name, side in zip(names, sides, strict=True):
            if side.compiles:
                graphs = f"{side.graphs_in_step:,} graph{'' if side.graphs_in_step == 1 else 's'}"
                cut = f" (cut by {_listed(Counter(side.cuts))})" if side.cuts else ""
                counted.append(f"{name} executes {graphs}{cut}")
            else:
                counted.append(f"{name} runs op by op")
        sentences.append(f"In step {sides[0].step}, {' and '.join(counted)}.")
    return [*sentences, *_fusion(names, pairs, posts)]


def _compiled(
    names: tuple[str, str], pairs: Sequence[Matched], apart: Sequence[Decomposed], post: PostChange | None
) -> Iterator[str]:
    """Describe the effect of a changed pre graph on the post graph, if both sides have the same compiler."""
    if post is None:
        return
    whole = [f"{decomposition.op} is one node in {names[decomposition.whole == 'b']}" for decomposition in apart]
    exchanged = [f"{names[1]} has {b} where {names[0]} has {a}" for a, b in _exchanged(pairs)]
    why = "; ".join([*whole, *exchanged][:SHOWN])
    same = all(pair.kind == "same" for pair in pairs)
    if same:
        before = "The pre graphs are the same"
    else:
        before = f"The pre graphs differ ({why})" if why else "The pre graphs differ"
    if not post:
        yield f"{before}, {'and' if same else 'but'} the post graphs are the same."
        return
    kernels = "; ".join(
        f"only {name} has {_listed(Counter(only))}"
        for name, only in zip(names, (post.only_a, post.only_b), strict=True)
        if only
    )
    yield f"{before}, {'but' if same else 'and'} the post graphs differ: {kernels}."


def _whole(names: tuple[str, str], split: Decomposed) -> str:
    keeps, takes = names if split.whole == "a" else names[::-1]
    parts = ", ".join(split.parts)
    if split.rank[0] < STRUCTURAL or split.called:
        return f"{keeps} keeps {split.op} whole ({_times(split.phases)}), and {takes} decomposes it into {parts}."
    return f"{keeps} has {split.op} ({_times(split.phases)}) where {takes} has {parts}."


def _alone(
    names: tuple[str, str], sides: tuple[Side, Side], pairs: Sequence[Matched], *, floating: bool
) -> Iterator[str]:
    """Name the computing ops that only one side has, without those that are left over on both sides."""
    chosen = [pair for pair in pairs if (pair.first.value.dtype in ("", *FLOATS)) == floating]
    for kind, other_kind, (name, other_name), side in (
        ("only-a", "only-b", names, sides[1]),
        ("only-b", "only-a", names[::-1], sides[0]),
    ):
        # The other side may execute such ops outside of its graphs. A lazy core does so with ops that it lacks, and
        # with the counter of an optimizer's steps, which is a number on the CPU.
        fallbacks = {kind_of_name(cut.removeprefix("fallback ")) for cut in side.cuts if cut.startswith("fallback ")}
        steps: list[Matched] = []
        undecided: list[Matched] = []
        for pair in chosen:
            op = pair.first
            of_model = any(isinstance(op_input.source, str) for op_input in op.takes) or op.gives
            counts = op.phase == "optimizer" and op.value.shape == () and role_of(op.kind) == "elementwise"
            (steps if side.cuts and counts and not of_model else undecided).append(pair)
        outside: Counter[tuple[str, str]] = Counter()
        by_phase: dict[str, Counter[str]] = {}
        for (phase, name_of_op), count in (_left_over(undecided, kind) - _left_over(undecided, other_kind)).items():
            if name_of_op in fallbacks:
                outside[phase, name_of_op] += count
            else:
                by_phase.setdefault(phase, Counter())[name_of_op] = count
        outside.update(_left_over(steps, kind))
        for (phase, name_of_op), count in outside.items():
            yield f"{other_name} runs {name_of_op} outside of its graphs, and {name} has it {_times([(phase, count)])}."
        for phase, ops in sorted(by_phase.items(), key=lambda item: phase_place(item[0])):
            yield f"Only {name} has {_listed(ops)}{f' in the {phase}' if phase else ''}."


def _left_over(pairs: Sequence[Matched], kind: str) -> Counter[tuple[str, str]]:
    """Count the ops on one side only, by phase and op.

    The ops of one decomposed call count once, as parts of the called op.
    """
    ops_by_call: dict[Hashable, tuple[str, str]] = {}
    for pair in pairs:
        first = pair.first
        if pair.kind != kind or not computes(pair.represents):
            continue
        # `addmm` decomposed into `mm` and `add` is reported as "parts of addmm", once per call, not once per part.
        called = kind_of_name(first.node.original) if first.node.original else first.kind
        if first.group is None or called == first.kind:
            ops_by_call[first.call] = (first.phase, pair.represents)
        else:
            ops_by_call[first.group] = (first.phase, f"parts of {called}")
    return Counter(ops_by_call.values())


def _copies(names: tuple[str, str], pairs: Sequence[Matched]) -> Iterator[str]:
    """Describe the copies to a different layout that only one side makes before an op reads the tensor."""
    copied = copies_on_one_side([op for pair in pairs for op in pair.a], [op for pair in pairs for op in pair.b])
    for name, other, reads in zip(names, names[::-1], copied, strict=True):
        if reads:
            readers: Counter[str] = Counter()
            for (phase, kind, _), count in reads.items():
                readers[f"{kind} in the {phase}" if phase else kind] += count
            copies = " and ".join(dict.fromkeys(copy for _, _, copy in reads))
            yield (
                f"{name} copies the input of {_listed(readers)} with {copies}, and {other} does not. A copy changes no "
                "number, but the library may compute an op differently if its input has a different layout."
            )


def _exchanged(pairs: Sequence[Matched]) -> Counter[tuple[str, str]]:
    """Count pairs of different ops that do the same work: one against one, or several against several."""
    exchanges: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        a, b = (tuple(op.kind for op in computing(ops)) for ops in (pair.a, pair.b))
        # One op against several is reported separately, as a decomposition.
        decomposed = len(a) != len(b) and min(len(a), len(b)) == 1
        if pair.kind in ("replaced", "group") and a and b and a != b and not decomposed:
            exchanges[", ".join(a), ", ".join(b)] += 1
    return exchanges


def _fusion(
    names: tuple[str, str], pairs: Sequence[Matched], posts: tuple[Sequence[Graph], Sequence[Graph]]
) -> Iterator[str]:
    """Describe how many computing nodes of a compiler's graphs share a generated kernel with another node."""
    of_sides = ([op for pair in pairs for op in pair.a], [op for pair in pairs for op in pair.b])
    for name, ops, graphs in zip(names, of_sides, posts, strict=True):
        pre = {graph.pre for graph in graphs}
        compiled = [op for op in computing(ops) if op.place.graph in pre]
        places = {op.place for op in compiled}
        kernels = held_once = 0
        for graph in graphs:
            fused: set[GraphPlace] = set()
            for node in graph.nodes:
                # A library call covers a node as well, but fuses nothing.
                generated = node.code and node.domain == "inductor"
                held = {GraphPlace(graph.pre, covered) for covered in node.covers} & places if generated else set()
                kernels += len(held) > 1
                fused |= held if len(held) > 1 else set()
            held_once += len(fused)
        if kernels:
            yield (
                f"{name} fuses {held_once} of {len({op.call for op in compiled})} computing nodes of its compiled "
                f"graphs into {kernels} kernel{'' if kernels == 1 else 's'}; its post graphs have "
                f"{sum(len(graph.nodes) for graph in graphs)} kernels and library calls in total."
            )


def _times(phases: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{_count(count)} in the {phase}" if phase else _count(count) for phase, count in phases)


def _listed(counts: Counter[str], suffix: str = "") -> str:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} ({_count(count)}{suffix})" for name, count in ranked[:SHOWN]]
    more = len(ranked) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _count(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


# Ops that one side keeps whole and the other decomposes, ranked by how surely the decomposition changes numbers.


@dataclass(frozen=True)
class Decomposed:
    """All calls of one op that are one op on the side `whole` (`a` or `b`) and several ops on the other side."""

    op: str
    whole: str
    calls: Sequence[Matched]

    @cached_property
    def phases(self) -> Sequence[tuple[str, int]]:
        """The number of calls in each phase, the phase with the most calls first."""
        return Counter(call.first.phase for call in self.calls).most_common()

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The ops of the decomposition, in order.

        If calls are decomposed differently, these are the ops of the most common decomposition.
        """
        parts_of_calls = Counter(tuple(op.node.op for op in computing(self._apart(call))) for call in self.calls)
        return parts_of_calls.most_common(1)[0][0]

    @cached_property
    def called(self) -> bool:
        """Check whether the parts are known to come from a call of the op, rather than only to do the same work."""
        return all(
            op.node.original and kind_of_name(op.node.original) == self.op
            for call in self.calls
            for op in computing(self._apart(call))
        )

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """The sort key: smaller for a decomposition that changes numbers more surely (see `_weight`)."""
        return (min(_weight(self._apart(call)) for call in self.calls), -len(self.calls))

    def _apart(self, call: Matched) -> Sequence[Op]:
        return call.b if self.whole == "a" else call.a


def decomposed(pairs: Sequence[Matched]) -> list[Decomposed]:
    """Return the decomposed ops, those that change numbers most surely first."""
    calls_by_op: dict[tuple[str, str], list[Matched]] = {}
    for pair in pairs:
        # A `_foreach_` node against one op of the same kind per tensor is not a decomposition: both sides round equally
        # often.
        if pair.kind != "group" or len({op.kind for op in (*pair.a, *pair.b)}) == 1:
            continue
        a, b = computing(pair.a), computing(pair.b)
        if len(a) != len(b) and min(len(a), len(b)) == 1:
            calls_by_op.setdefault((pair.represents, "a" if len(a) == 1 else "b"), []).append(pair)
    made = [Decomposed(op, whole, calls) for (op, whole), calls in calls_by_op.items()]
    return sorted(made, key=lambda decomposition: (*decomposition.rank, decomposition.op, decomposition.whole))


def _weight(ops: Sequence[Op]) -> int:
    """Rate how a decomposition into these ops affects rounding.

    0: elementwise arithmetic that adds to or subtracts from the rounded result of another part (1 - y * y). Digits
       cancel, and a kernel of the whole op can contract the two operations into one rounding.
    1: other elementwise arithmetic with several roundings.
    2: reductions, whose order of summation depends on the kernel.
    3: matrix products and other ops for which each side has its own kernel.
    4: not floating point.
    """
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
    return 0 if any(op_input.source in rounded for op in sums for op_input in op.takes) else 1
