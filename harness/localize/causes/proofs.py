"""Proof both ways: each cause is swapped in and swapped out, and the drift with all of them swapped out is measured.

If there are few causes, each is tested alone. If there are many, or if there is no time to test each, the most likely
one is tested alone, and the others are bisected; about log2(n) + 3 tests find each cause that acts alone. The remaining
causes act only together; their set is shrunk to those that are needed.

A compiled step differs from an eager one in many kernels that only round differently. Beside a fault, these are swapped
in and out together: their shares in the drift would be 0, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ...search import bisect_all, ddmin
from .hybrid_tests import Drift, HybridTests, Infeasible
from .site_causes import Cause, joined_causes, op_of_both

FEW = 24
"""The largest number of causes that are each tested alone. If there are more, groups of them are tested first."""


@dataclass(frozen=True, slots=True)
class MeasuredCause:
    """A cause with the drifts of both of its hybrids.

    swapped_in, swapped_out: the drift of the hybrid; None if the hybrid cannot be executed.
    share: the share of the whole drift that is due to the cause.
    together: the number of other causes that act only together with this one.
    beside: the number of other causes that were swapped together with this one, as they all only round differently.
    why: the reason why a hybrid cannot be executed.
    """

    cause: Cause
    swapped_in: Drift | None = None
    swapped_out: Drift | None = None
    share: float | None = None
    together: int = 0
    beside: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Proofs:
    """All causes of a step.

    whole: the drift of side b with all of its causes.
    rest: the drift of side b without the significant causes (or, if there are none, without any cause). It is None if
        that hybrid cannot be executed.
    significant: the causes that push the drift beyond the threshold.
    others: those of the first FEW causes that are not significant, and were tested.
    grouped: the causes that only round differently, and were swapped together.
    tests: the number of hybrids that were executed.
    untested: the number of those that were not tested because the time was over.
    """

    whole: Drift
    rest: Drift | None
    significant: tuple[MeasuredCause, ...]
    others: tuple[MeasuredCause, ...]
    tests: int
    untested: int = 0
    grouped: tuple[MeasuredCause, ...] = ()

    @property
    def others_with_effect(self) -> list[MeasuredCause]:
        """The causes that are not significant, without those that change no value when they are swapped in."""
        others = (*self.others, *self.grouped)
        return [other for other in others if other.swapped_in is None or not other.swapped_in.is_none]


def prove(
    tests: HybridTests,
    causes: Sequence[Cause],
    threshold: float,
    moves: Callable[[Cause], float] = lambda cause: 0.0,
    rounding: Collection[Cause] = (),
) -> Proofs:
    """Find the causes that push the drift beyond the threshold, and measure the shares of the causes in the drift.

    `moves` tells how far a cause moves its own results: the cause that moves them farthest is the most likely one.
    `rounding` are causes that, taken by themselves, only round differently.
    """
    whole_drift = tests.swapped_out([])

    def fails(tried: Sequence[Cause]) -> bool:
        try:
            return is_beyond(tests.swapped_in(tried), threshold)
        except Infeasible:
            # a set of causes that cannot be swapped in may still contain a significant one: test its parts
            return len(tried) > 1

    # A cause that another one undoes drifts alone. If the step does not drift, no cause is significant.
    tried_alone = causes if is_beyond(whole_drift, threshold) else []
    likely = [cause for cause in tried_alone if cause not in rounding]
    in_groups = [cause for cause in tried_alone if cause in rounding]
    if not likely:
        likely, in_groups = in_groups, []
    if likely and (len(likely) > FEW or not tests.have_time_for(2 * len(likely))):
        first, *others_tried = sorted(likely, key=moves, reverse=True)
        found = [*([first] if fails([first]) else ()), *bisect_all(others_tried, fails)]
    else:
        found = [cause for cause in likely if fails([cause])]
    found += bisect_all(in_groups, fails)
    alone = [cause for cause in tried_alone if cause in found]
    remaining = [cause for cause in causes if cause not in alone]

    def remains(tried: Sequence[Cause]) -> bool:
        """Check whether side b drifts beyond the threshold with only these causes, without those that act alone."""
        removed = [*alone, *(cause for cause in remaining if cause not in tried)]
        try:
            return is_beyond(tests.swapped_out(removed), threshold)
        except Infeasible:
            return False

    needed = ddmin(remaining, remains) if remaining and remains(remaining) else []
    together = _joined_by_op(needed)
    chosen = [*alone, *together]
    significant = [
        replace(_proof(tests, cause, whole_drift), together=len(together) - 1 if cause in together else 0)
        for cause in chosen
    ]
    try:
        # if none is significant, all are swapped out, to see whether they explain the drift at all
        rest = tests.swapped_out(chosen or causes)
    except Infeasible:
        rest = None
    beside = [cause for cause in in_groups if cause not in (*alone, *needed)]
    grouped = _proven_together(tests, beside) if chosen and rest is not None and not is_beyond(rest, threshold) else []
    tested = beside if grouped else []
    insignificant = [cause for cause in causes[:FEW] if cause not in (*alone, *needed, *tested)]
    others = [_proof(tests, cause, whole_drift) for cause in insignificant if tests.have_time_for(2)]
    untested = len(insignificant) - len(others)
    others.sort(key=lambda measured: -(measured.share or 0.0))
    return Proofs(whole_drift, rest, tuple(significant), tuple(others), tests.count, untested, tuple(grouped))


def _proven_together(tests: HybridTests, causes: Sequence[Cause]) -> list[MeasuredCause]:
    """Swap several causes in and out together, and return the first FEW of them.

    Return [] if there are not several, or if that cannot be executed.
    """
    if len(causes) < 2:
        return []
    try:
        came, went = tests.swapped_in(causes), tests.swapped_out(causes)
    except Infeasible:
        return []
    return [MeasuredCause(cause, came, went, beside=len(causes) - 1) for cause in causes[:FEW]]


def _joined_by_op(causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes that act only together, with an op's forward and backward joined."""
    by_op: dict[object, list[Cause]] = {}
    for cause in causes:
        by_op.setdefault((cause.kind, op_of_both(cause.ops["a"] or cause.ops["b"])), []).append(cause)
    return [
        group[0]
        if len(group) == 1
        else joined_causes(group, tuple(dict.fromkeys(why for member in group for why in member.reasons)))
        for group in by_op.values()
    ]


def is_beyond(drift: Drift, threshold: float) -> bool:
    return drift.score > threshold or bool(drift.discrete)


def _proof(tests: HybridTests, cause: Cause, whole_drift: Drift) -> MeasuredCause:
    proof = MeasuredCause(cause)
    try:
        proof = replace(proof, swapped_in=tests.swapped_in([cause]))
    except Infeasible as error:
        proof = replace(proof, why=f"it cannot be swapped into the reference by itself: {error}")
    try:
        out = tests.swapped_out([cause])
    except Infeasible as error:
        return replace(proof, why=proof.why or f"it cannot be swapped out by itself: {error}")
    return replace(proof, swapped_out=out, share=_share(whole_drift, out, proof.swapped_in))


def least_share(measured: MeasuredCause, whole_drift: Drift) -> float:
    """Return the share of the drift that is due to a cause, as far as its hybrids show it.

    If the cause cannot be swapped out, this is the share that it has when it is swapped in; if it cannot be swapped in
    either, 0.
    """
    if measured.share is not None or measured.swapped_in is None or not whole_drift.amount:
        return measured.share or 0.0
    return min(1.0, (measured.swapped_in.amount / whole_drift.amount) ** 2)


def _share(whole_drift: Drift, without: Drift, alone: Drift | None) -> float | None:
    """Return the share of the squared drift that is due to a cause.

    Both the drift without the cause and the drift of the cause alone measure this share. The two measures differ if
    causes interact, so their mean is returned.
    """
    if not whole_drift.amount:
        return None
    gone = 1 - (without.amount / whole_drift.amount) ** 2
    comes = gone if alone is None else (alone.amount / whole_drift.amount) ** 2
    return max(0.0, min(1.0, (gone + comes) / 2))
