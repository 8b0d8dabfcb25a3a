"""A culprit that is no op but a way in which a mode executes: where lazy graphs are cut, how the compiler is set."""

from __future__ import annotations

from typing import Any

from ..records.culprit import Culprit, Proof, SwappedIn, SwappedOut


def mode_culprit(
    *, kind: str, step: int, name: str, before: float, after: float, threshold: float, why: str, **more: Any
) -> Culprit:
    """The culprit: with another way in its place the score goes from `before` to `after`.

    Both ways are proven by these two executions. `more` are fields that follow from nothing else.
    """
    return Culprit(
        kind=kind,
        status="culprit",
        phase="forward",
        name=name,
        step=step,
        significance="beyond-rounding" if before > threshold else "rounding",
        share_of_drift=1.0,
        proof=Proof(
            SwappedIn(True, score_before=after, score_after=before),
            SwappedOut(True, score_before=before, score_after=after, score_without_all=after),
            why=why,
        ),
        **more,
    )
