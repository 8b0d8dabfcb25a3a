"""A culprit that is no op but a way in which a mode executes: where lazy graphs are cut, how the compiler is set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def mode_culprit(
    *,
    kind: str,
    step: int,
    name: str,
    reasons: Sequence[str],
    before: float,
    after: float,
    threshold: float,
    why: str,
    op: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The culprit as `investigation.json` has it: with another way in its place the score goes from `before` to `after`.

    Both ways are proven by these two executions. `more` takes the place of what follows from nothing else.
    """
    proof: Mapping[str, Any] = {
        "swap_in": {"holds": True, "score_before": after, "score_after": before},
        "swap_out": {
            "holds": True,
            "score_before": before,
            "score_after": after,
            "score_without_all": after,
        },
        "together_with": 0,
        "why": why,
    }
    return {
        "status": "culprit",
        "phase": "forward",
        "module": None,
        "op": op,
        "name": name,
        "step": step,
        "source": None,
        "kind": kind,
        "reasons": list(reasons),
        "ops": {"a": [], "b": []},
        "places": [],
        "sites": 0,
        "significance": "beyond-rounding" if before > threshold else "rounding",
        "local_significance": None,
        "error_ulp": {},
        "rho": {},
        "bias": {},
        "share_of_drift": 1.0,
        "proof": proof,
        **more,
    }
