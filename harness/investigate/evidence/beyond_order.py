"""Calls that do not repeat for another reason than the order of their additions, as noise files describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...drift.step_noise import noises_of
from ...runs.recorded_run import RecordedRun

MOST = 16.0
"""The multiple of what the order of additions explains above which something else makes a call's bits differ. The same
limit as that of a kernel's error (docs/reference/score.md)."""


def calls_beyond_order(run: RecordedRun) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the steps and calls on a run's tapes whose executions are further apart, or further from their result in
    double, than the order of additions explains. Each op and line is yielded once."""
    seen: set[tuple[Any, ...]] = set()
    for noise in noises_of(run.path):
        for call in noise.unrepeatable:
            place = (call["op"], call["line"], call["module"])
            if place not in seen and max(multiples_of(call)) > MOST:
                seen.add(place)
                yield noise.step, call


def multiples_of(call: Mapping[str, Any]) -> tuple[float, float]:
    """Return the spread and the error of a call as multiples of what the order of additions explains, 0 if unknown."""
    spread, error = (call.get(name) for name in ("spread_rho", "error_rho"))
    return float(spread or 0.0), float(error or 0.0)
