"""The time of each step of each mode, divided into compiling, executing, transferring and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .appearance import PALETTE, figure_with_title, finish_axes, place_pieces

PARTS = ("compile", "execute", "transfer", "recording", "other")
"""The parts of a step in the order in which they are stacked, the first one lowest."""

_COLORS = (PALETTE[2], PALETTE[1], PALETTE[5], PALETTE[4], "#c9c9c9")
_HATCHES = ("///", "", "...", "xx", "")
"""Hatches that distinguish the parts without colour."""

_PANEL, _FRAME = 1.7, 1.0  # inches
_TEXT = 8.5  # points
_MOST_BARS = 80
"""The maximum number of steps that are drawn as separate bars; more are drawn as one area."""

_HIGH, _MARGIN = 0.8, 1.5
"""The height of a panel is about the _HIGH quantile of the times of its steps, multiplied by _MARGIN; longer steps are
cut off and labelled with their time."""

_MOST_LABELS = 8


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """The times of one mode's steps in seconds: `parts` has a row for each of `PARTS` and a column for each step."""

    mode: str
    steps: Sequence[int]
    parts: Sequence[Sequence[float]]


def step_timeline(modes: Sequence[TimelineStep], *, title: str) -> Figure:
    """Return a figure with a panel for each mode, one below the other, on a shared axis of steps.

    A step that is far longer than most, such as one that compiles, is cut off at the upper edge and labelled with its
    time."""
    figure = figure_with_title(title, _FRAME + _PANEL * len(modes))
    panels = figure.subplots(len(modes), 1, sharex=True, squeeze=False)[:, 0]
    for axes, mode in zip(panels, modes, strict=True):
        _draw(axes, mode)
    for axes in panels[:-1]:
        axes.set_xlabel("")
    drawn = [number for number, _ in enumerate(PARTS) if any(any(timeline.parts[number]) for timeline in modes)]
    looks = [(PARTS[number], _COLORS[number], _HATCHES[number]) for number in drawn]
    place_pieces(figure, looks, columns=len(PARTS), size=_TEXT + 0.5)
    return figure


def _draw(axes: Axes, mode: TimelineStep) -> None:
    milliseconds = np.array(mode.parts, dtype=float).reshape(len(PARTS), -1) * 1e3
    totals = milliseconds.sum(axis=0)
    steps = np.array(mode.steps)
    # If few steps are long, the quantile is that of the others; if many are long, nothing is cut off.
    highest = float(totals.max()) if totals.size else 0.0
    usual = float(np.quantile(totals, _HIGH)) * _MARGIN if totals.size else 0.0
    ceiling = (highest if highest <= 1.3 * usual or not usual else usual) or 1.0
    floor = np.zeros_like(totals)
    for number, values in enumerate(milliseconds):
        upper = np.minimum(floor + values, ceiling)
        _fill(axes, steps, floor, upper, number)
        floor = upper
    axes.set_ylim(0, ceiling * (1.16 if (totals > ceiling).any() else 1.02))
    if steps.size:
        axes.set_xlim(steps[0] - 0.6, steps[-1] + 0.6)
    finish_axes(axes, x_label="step", y_label="ms")
    # Write the times of the steps that are cut off, the longest first.
    for place in [place for place in np.argsort(-totals)[:_MOST_LABELS] if totals[place] > ceiling]:
        text = f"▲ {_written(float(totals[place]))}"
        axes.text(steps[place], ceiling * 1.02, text, fontsize=_TEXT - 1, ha="left" if place == 0 else "center")
    median = f": half of the steps take {_written(float(np.median(totals)))} or less" if steps.size else ": no step"
    named = axes.set_title(f"{mode.mode}{median}", loc="left", fontsize=_TEXT + 1, fontweight="bold", pad=4)
    named.set_parse_math(False)


def _fill(
    axes: Axes, steps: NDArray[np.int64], lower: NDArray[np.float64], upper: NDArray[np.float64], number: int
) -> None:
    look: dict[str, Any] = {
        "color": _COLORS[number],
        "hatch": _HATCHES[number],
        "edgecolor": "white",
        "linewidth": 0,
    }
    if steps.size <= _MOST_BARS:
        axes.bar(steps, upper - lower, 0.8, bottom=lower, **look)
    else:
        axes.fill_between(steps, lower, upper, step="mid", **look)


def _written(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.3g} s" if milliseconds >= 1e3 else f"{milliseconds:.3g} ms"
