"""Proof both ways: each cause swapped in and swapped out, and what is left when all of them are gone.

Each cause is tested alone while there are few; many are searched by halves, which finds each that acts alone
in about log2(n) + 3 tests. What then remains acts only together, and is shrunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..search import bisect_all, ddmin
from .hybrid_tests import Drift, HybridTests, Infeasible
from .swap_sites import Cause, joined_causes, op_of_both

FEW = 24
"""Up to so many causes are each tested alone; beyond, groups are tested first."""


@dataclass(frozen=True, slots=True)
class MeasuredCause:
    """Of one cause: the drifts of both hybrids, None where one cannot be executed, as `why` says.

    `share` is the part of the whole drift that goes with it; `together` counts the causes that act only with it.
    """

    cause: Cause
    swapped_in: Drift | None = None
    swapped_out: Drift | None = None
    share: float | None = None
    together: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Proofs:
    """All causes of a step. `whole` is the drift of side b as it is, `rest` that of side b without any of the
    causes, None where that hybrid cannot be executed. `significant` are those beyond the threshold."""

    whole: Drift
    rest: Drift | None
    significant: tuple[MeasuredCause, ...]
    others: tuple[MeasuredCause, ...]
    tests: int


def prove(tests: HybridTests, causes: Sequence[Cause], threshold: float) -> Proofs:
    """Find the causes that make the drift beyond the threshold, and measure the share of each of the others."""
    whole = tests.swapped_out([])

    def fails(tried: Sequence[Cause]) -> bool:
        try:
            return is_beyond(tests.swapped_in(tried), threshold)
        except Infeasible:
            # what cannot be mixed may still hold a cause: look into its parts
            return len(tried) > 1

    alone = bisect_all(causes, fails) if len(causes) > FEW else [cause for cause in causes if fails([cause])]
    left = [cause for cause in causes if cause not in alone]

    def remains(tried: Sequence[Cause]) -> bool:
        """Whether side b without the causes that act alone, and otherwise only with these, still drifts."""
        gone = [*alone, *(cause for cause in left if cause not in tried)]
        try:
            return is_beyond(tests.swapped_out(gone), threshold)
        except Infeasible:
            return False

    needed = ddmin(left, remains) if left and remains(left) else []
    together = _of_one_op(needed)
    chosen = [*alone, *together]
    others = [_proof(tests, cause, whole) for cause in causes[:FEW] if cause not in (*alone, *needed)]
    significant = [
        replace(_proof(tests, cause, whole), together=len(together) - 1 if cause in together else 0) for cause in chosen
    ]
    try:
        # without any that is significant all of them go, to see whether they explain the drift at all
        rest = tests.swapped_out(chosen or causes)
    except Infeasible:
        rest = None
    others.sort(key=lambda one: -(one.share or 0.0))
    return Proofs(whole, rest, tuple(significant), tuple(others), tests.count)


def _of_one_op(causes: Sequence[Cause]) -> list[Cause]:
    """The causes that act only together, those joined that are one op's forward and its backward."""
    found: dict[object, list[Cause]] = {}
    for cause in causes:
        found.setdefault((cause.kind, op_of_both(cause.ops["a"] or cause.ops["b"])), []).append(cause)
    return [
        one[0]
        if len(one) == 1
        else joined_causes(one, tuple(dict.fromkeys(why for each in one for why in each.reasons)))
        for one in found.values()
    ]


def is_beyond(drift: Drift, threshold: float) -> bool:
    return drift.score > threshold or bool(drift.discrete)


def _proof(tests: HybridTests, cause: Cause, whole: Drift) -> MeasuredCause:
    proof = MeasuredCause(cause)
    try:
        proof = replace(proof, swapped_in=tests.swapped_in([cause]))
    except Infeasible as error:
        proof = replace(proof, why=f"it cannot be put into the reference alone: {error}")
    try:
        out = tests.swapped_out([cause])
    except Infeasible as error:
        return replace(proof, why=proof.why or f"it cannot be taken out alone: {error}")
    return replace(proof, swapped_out=out, share=_share(whole, out, proof.swapped_in))


def _share(whole: Drift, without: Drift, alone: Drift | None) -> float | None:
    """How much of the drift goes with a cause, in squares: what remains without it, and what it makes alone,
    are both measures of it, and where several causes mix the mean of the two is taken."""
    if not whole.amount:
        return None
    gone = 1 - (without.amount / whole.amount) ** 2
    comes = gone if alone is None else (alone.amount / whole.amount) ** 2
    return max(0.0, min(1.0, (gone + comes) / 2))
