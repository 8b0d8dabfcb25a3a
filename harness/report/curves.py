"""The losses of an investigation's runs, in the form in which the report's page draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..records.results.findings import Findings
from ..runs.recorded_run import RecordedRun

MOST_POINTS = 4000
"""The largest number of steps of a curve on the page. It is larger than the width of any screen in pixels. For a longer
run, only every second, third, ... step is shown, and the page says so."""


@dataclass(frozen=True, slots=True)
class CurveRow:
    """The curve of one loss of one run: its values at the shown steps, None where a value is missing or not finite.

    `reference` is the index of the curve that this curve is compared with, None for the reference's own curves.
    """

    label: str
    losses: Sequence[float | None]
    reference: int | None


@dataclass(frozen=True, slots=True)
class EnvelopeRow:
    """The range in which rounding alone moves the reference's loss.

    `low` and `high` are the range's limits at each step, None where they are unknown.
    """

    label: str
    low: Sequence[float | None]
    high: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class DrawnCurves:
    """The curves on the page. `every` is the distance in steps from one shown step to the next."""

    steps: Sequence[int]
    rows: Sequence[CurveRow]
    envelopes: Sequence[EnvelopeRow]
    every: int = 1


def curves_of(runs: Sequence[RecordedRun], findings: Findings) -> DrawnCurves:
    """Return the losses of the runs, the reference first, and the measured envelopes."""
    losses: list[tuple[str, str, dict[int, float]]] = []
    for run in sorted(runs, key=lambda run: run.manifest.mode != findings.reference):
        for name, series in run.journal.series().items():
            points = {step.step: step.loss for step in series if step.loss is not None and math.isfinite(step.loss)}
            losses.append((run.manifest.mode, name, points))
    recorded_steps = sorted({step for _, _, points in losses for step in points})
    every = max(1, math.ceil(len(recorded_steps) / MOST_POINTS))
    steps = recorded_steps[::every]
    rows: list[CurveRow] = []
    for mode, name, points in losses:
        label = f"{mode}, {name}" if name else mode
        reference = next((at for at, curve in enumerate(losses) if curve[:2] == (findings.reference, name)), None)
        is_compared = reference not in (None, len(rows))
        rows.append(CurveRow(label, [points.get(step) for step in steps], reference if is_compared else None))
    envelopes = [_envelope(pair.a, pair.curve, steps) for pair in findings.pairs if pair.curve]
    return DrawnCurves(steps, rows, [envelope for envelope in envelopes[:1] if envelope is not None], every)


def _envelope(name: str, curve: Any, steps: Sequence[int]) -> EnvelopeRow | None:
    at = {int(step): place for place, step in enumerate(curve.get("steps") or ())}
    reference, width = curve.get("reference") or (), curve.get("envelope") or ()
    low: list[float | None] = []
    high: list[float | None] = []
    for step in steps:
        place = at.get(step)
        # Numbers that JSON cannot represent are stored as text.
        middle, half = (math.nan, math.nan) if place is None else (float(reference[place]), float(width[place]))
        is_finite = math.isfinite(middle + half)
        low.append(middle - half if is_finite else None)
        high.append(middle + half if is_finite else None)
    return EnvelopeRow(name, low, high) if any(value is not None for value in low) else None
