"""The distribution of the errors of an op's kernels, on each set of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from .appearance import PALETTE, figure_with_title, finish_rows, name_rows

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
"""The quantiles of the errors that a plot needs, as shares of the elements."""

FLOOR = 2.0**-7
"""Errors below this many ULP, such as those of exact results, are drawn at this value."""

CEILING = 1e10
"""Errors above this many ULP, which occur when a result has the wrong magnitude, are drawn as an arrow at the edge."""

_LINE, _HEAD, _FRAME = 0.14, 0.33, 1.3
"""Heights in inches: the line of an input set; a kernel's name with its margin; the title, axis and legend together."""

_TEXT = 7.5  # points
_MOST_LINES = 80
"""The maximum number of lines in one column of panels; more are drawn in two columns."""

_HALF_ULP = 0.5


@dataclass(frozen=True, slots=True)
class ErrorsOfKernel:
    """One kernel on one set of inputs. `errors` are in ULP, at `QUANTILES`; they are empty if no result is finite."""

    kernel: str
    inputs: str
    errors: Sequence[float]


def kernel_errors(rows: Sequence[ErrorsOfKernel], *, title: str) -> Figure:
    """Return a figure with one panel for each kernel. Each panel has one line for each set of inputs.

    The thick part of a line spans the 5th to the 95th percentile, and the thin part extends to the largest error; the
    dot is the median. Kernels and sets are in the order of the rows; all panels share the axis of errors."""
    kernels = list(dict.fromkeys(row.kernel for row in rows))
    inputs = list(dict.fromkeys(row.inputs for row in rows))
    columns = 1 if len(kernels) * len(inputs) <= _MOST_LINES else 2
    height = -(-len(kernels) // columns)
    figure = figure_with_title(title, height * (len(inputs) * _LINE + _HEAD) + _FRAME)
    grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.T.flat)  # column by column; the last may be one too many
    for axes, kernel in zip(panels, kernels, strict=False):
        own = {row.inputs: row.errors for row in rows if row.kernel == kernel}
        for place, name in enumerate(inputs):
            if not own.get(name):
                note = "not measured, or no finite result"
                axes.text(FLOOR, place, note, fontsize=_TEXT, color="#777777", va="center")
                continue
            at = dict(zip(QUANTILES, _drawn(own[name]), strict=True))
            color = PALETTE[(place + 1) % len(PALETTE)]
            axes.hlines(place, at[0.5], at[1.0], color=color, linewidth=1.0)
            axes.hlines(place, at[0.05], at[0.95], color=color, linewidth=4.5, alpha=0.45)
            axes.plot([at[0.99]], [place], marker="|", markersize=6, color=color, markeredgewidth=1.4)
            end, size = (">", 5) if at[1.0] == CEILING else ("|", 9)
            axes.plot([at[1.0]], [place], marker=end, markersize=size, color=color, markeredgewidth=1.8)
            axes.plot([at[0.5]], [place], marker="o", markersize=4, color=color, markeredgecolor="white")
        axes.set_ylim(len(inputs) - 0.4, -0.6)  # the first set of inputs on top
        name_rows(axes, inputs, size=_TEXT)
        named = axes.set_title(kernel, loc="left", fontsize=_TEXT + 1.5, fontweight="bold", pad=3)
        named.set_parse_math(False)
    for axes in panels[len(kernels) :]:
        axes.remove()
    _finish(panels[: len(kernels)], height, [error for row in rows for error in row.errors])
    _explain(figure)
    return figure


def _drawn(errors: Sequence[float]) -> list[float]:
    """Return the errors as they are drawn: between the floor and the ceiling."""
    return [float(error) for error in np.clip(errors, FLOOR, CEILING)]


def _finish(panels: Sequence[Axes], height: int, errors: Sequence[float]) -> None:
    """Draw one logarithmic axis, labelled at the bottom of each column, with a line at half an ULP."""
    largest = max([1.0, *_drawn(errors)]) if errors else 1.0
    powers = range(-2, int(np.ceil(np.log10(largest))) + 1)
    crowded = 2 if len(panels) > height else 1
    stride = max(1, -(-len(powers) * crowded // 10))
    ticks = [FLOOR, *(10.0**power for power in powers if power > -2 and (power % stride == 0))]
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlim(FLOOR / 1.5, max(10.0, largest) * 2)
        axes.axvline(_HALF_ULP, color="#444444", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        finish_rows(axes)
        axes.tick_params(axis="x", labelsize=_TEXT + 1, length=2)
    for axes in {panels[min(height, len(panels)) - 1], panels[-1]}:
        axes.tick_params(axis="x", labelbottom=True)
        axes.set_xticklabels([_tick(tick) for tick in ticks])
        axes.set_xlabel("error in units in the last place (ULP)", fontsize=_TEXT + 2)


def _tick(value: float) -> str:
    if value == FLOOR:
        return "0"
    if value < 1e4:
        return f"{value:g}"
    beyond = r"\geq" if value == CEILING else ""
    return f"${beyond}10^{{{round(np.log10(value))}}}$"


def _explain(figure: Figure) -> None:
    grey = "#555555"
    handles = [
        Line2D([], [], color=grey, marker="o", markersize=4, linewidth=0, label="median"),
        Line2D([], [], color=grey, linewidth=4.5, alpha=0.45, label="5 % to 95 %"),
        Line2D([], [], color=grey, marker="|", markersize=6, linewidth=0, label="99 %"),
        Line2D([], [], color=grey, marker="|", markersize=9, markeredgewidth=1.8, linewidth=1, label="largest"),
        Line2D([], [], color="#444444", linewidth=0.8, linestyle=(0, (2, 2)), label="half an ULP: rounded once"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=5, frameon=False, fontsize=_TEXT + 1)
