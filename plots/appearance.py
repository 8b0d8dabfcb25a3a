"""The appearance of every plot: palette, distinguishable strokes, axes, legend and files.

Figures are created without pyplot, so that no global state is touched and threads may draw.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedLocator,
    LogFormatterSciNotation,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    ScalarFormatter,
)
from numpy.typing import NDArray

PALETTE = ("#999999", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colours of Okabe and Ito, Color Universal Design, 2008. Grey is first, for the curve below the others; yellow is
left out, because it is hard to see on white."""

_DASHES: tuple[tuple[float, ...], ...] = (
    (4, 2),
    (1.2, 1.4),
    (6, 2, 1.2, 2),
    (8, 3),
    (5, 1.5, 1.2, 1.5, 1.2, 1.5),
)
_MARKERS = "osD^vP<>X*"
_WIDEST, _NARROWEST = 4.0, 1.1  # points
_MARKED_POINTS = 8
_ALL_MARKED = 30

_EXTREME = 300
"""The largest exponent of ten on an axis; matplotlib overflows beyond it."""

WIDTH = 9.0  # inches
_PANEL_HEIGHT, _LINE_HEIGHT = 2.6, 0.19  # inches
_TITLE_SIZE, _TEXT_SIZE = 12, 9  # points
_LEGEND_HANDLE = 0.85  # inches


@dataclass(frozen=True, slots=True)
class Stroke:
    """The appearance of one of several curves.

    The first curve is the widest and is drawn below the others; later curves are narrower and dashed, so that
    overlapping curves are all visible. Dashes and markers distinguish the curves without colour.
    """

    index: int
    count: int

    @property
    def color(self) -> str:
        return PALETTE[self.index % len(PALETTE)]

    @property
    def dashes(self) -> tuple[float, ...]:
        return _DASHES[(self.index - 1) % len(_DASHES)] if self.index else ()

    @property
    def marker(self) -> str:
        return _MARKERS[self.index % len(_MARKERS)]

    @property
    def width(self) -> float:
        if self.count == 1:
            return _NARROWEST
        return _WIDEST - (_WIDEST - _NARROWEST) * self.index / (self.count - 1)

    def line(
        self,
        x: Sequence[float] | NDArray[np.generic],
        y: Sequence[float] | NDArray[np.generic],
        *,
        scale: float = 1.0,
    ) -> Line2D:
        """Return a line with a few markers, at places where the other curves have none."""
        width = self.width * scale
        stride = max(1, len(x) // _MARKED_POINTS)
        every = 1 if len(x) <= _ALL_MARKED else (stride * self.index // self.count, stride)
        line = Line2D(x, y, color=self.color, linewidth=width, marker=self.marker, markevery=every)
        line.set_markersize(4.0 + 0.5 * width)
        line.set_markeredgecolor("white")
        line.set_markeredgewidth(0.6)
        line.set_solid_capstyle("round")
        line.set_zorder(2 + self.index / self.count)
        if self.dashes:
            line.set_dashes(self.dashes)
        return line


def figure_with_title(title: str, height: float) -> Figure:
    """Return an empty figure of this height, with its title in one line."""
    figure = Figure(figsize=(WIDTH, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    text = figure.suptitle(title, x=0.01, ha="left", fontsize=_TITLE_SIZE, fontweight="bold")
    text.set_parse_math(False)  # a `$` in the name of a run is a dollar sign
    return figure


def titled_figure(title: str, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels stacked on a shared x axis; `heights` are relative to each other."""
    figure = figure_with_title(title, _PANEL_HEIGHT * len(heights))
    wrapped = _wrapped(figure, title, WIDTH - 0.2, size=_TITLE_SIZE, weight="bold")
    figure.texts[0].set_text(wrapped)  # the title; a second `suptitle` would move it back to the middle
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))
    figure.set_figheight(figure.get_figheight() + 0.2 * (wrapped.count("\n") + 1))
    return figure, list(grid[:, 0])


def finish_axes(axes: Axes, *, x_label: str = "", y_label: str = "") -> None:
    """Give the axes a grid, labels, and as many ticks as fit."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    width, height = axes.get_position().size * figure.get_size_inches()
    left, right = axes.get_xlim()
    if right - left < 1:
        axes.set_xlim((left + right - 1) / 2, (left + right + 1) / 2)
    bins = int(np.clip(width * 1.2, 1, 10))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=bins, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    ticks = int(np.clip(height * 3.5, 2, 8))
    if axes.get_yscale() == "log":
        # Evenly spaced powers of ten; matplotlib's own locator drops to one tick, or none, in a flat panel.
        low, high = np.log10(axes.get_ylim())
        exponents = np.arange(np.ceil(low), np.floor(high) + 1)
        stride = max(1, -(-len(exponents) // ticks))
        axes.yaxis.set_major_locator(FixedLocator([float(10.0**exponent) for exponent in exponents[::stride]]))
        axes.yaxis.set_major_formatter(LogFormatterSciNotation(base=10, labelOnlyBase=True))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=ticks))
        axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    axes.grid(True, color="#d8d8d8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=_TEXT_SIZE)
    axes.set_xlabel(x_label, fontsize=_TEXT_SIZE + 1)
    axes.set_ylabel(y_label, fontsize=_TEXT_SIZE + 1)


def name_rows(axes: Axes, names: Sequence[str], *, size: float) -> None:
    """Write the names of rows at the places 0, 1, ... of the y axis, without tick marks."""
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(names)))))
    for label in axes.set_yticklabels(list(names), fontsize=size):
        label.set_parse_math(False)
    axes.tick_params(axis="y", length=0)


def finish_rows(axes: Axes) -> None:
    """Set the grid of axes whose rows are named, and hide all edges but the lower one."""
    axes.grid(True, axis="x", color="#d8d8d8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def isolated_points(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Find the points between two gaps (NaN): a line needs two neighbouring points, so it would not show them."""
    before, after = np.r_[np.nan, values[:-1]], np.r_[values[1:], np.nan]
    isolated: NDArray[np.bool_] = ~np.isnan(values) & np.isnan(before) & np.isnan(after)
    return isolated


def place_pieces(figure: Figure, looks: Sequence[tuple[str, str, str]], *, columns: int, size: float) -> None:
    """Put a legend of hatched pieces below the panels; `looks` are the name, colour and hatch of each."""
    handles = [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", linewidth=0, label=name) for name, color, hatch in looks
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=columns, frameon=False, fontsize=size, handleheight=1.2
    )


def set_log_range(axes: Axes, values: NDArray[np.float64]) -> None:
    """Make the y axis logarithmic. It extends from the power of ten below the values, which must be positive, to the
    power of ten above them, over at least two decades."""
    low = np.clip(np.floor(np.log10(values.min())), -_EXTREME, _EXTREME)
    high = np.clip(np.ceil(np.log10(values.max())), -_EXTREME, _EXTREME)
    low -= high - low < 2
    high += high - low < 2
    margin = min(0.04 * (high - low), 4.0)
    axes.set_autoscaley_on(False)
    axes.set_yscale("log")
    axes.set_ylim(*np.power(10.0, [low - margin, high + margin]))


def place_legend(figure: Figure, entries: Sequence[tuple[Stroke, str]]) -> None:
    """Put the legend below the panels and make the figure taller by its height."""
    half = WIDTH / 2 - _LEGEND_HANDLE
    short = all(_text_width(figure, text, size=_TEXT_SIZE) < half for _, text in entries)
    columns = 2 if short and len(entries) > 3 else 1
    room = WIDTH - 0.2 - _LEGEND_HANDLE
    texts = [_wrapped(figure, text, room, size=_TEXT_SIZE, indent="  ") for _, text in entries]
    handles = [stroke.line([0, 1, 2], [0, 0, 0]) for stroke, _ in entries]
    for handle in handles:
        handle.set_markevery([1])
    # A legend omits labels that start with an underscore, hence the numbers.
    legend = figure.legend(
        handles,
        [str(number) for number in range(len(texts))],
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=_TEXT_SIZE,
        handlelength=4.5,
    )
    for artist, text in zip(legend.get_texts(), texts, strict=True):
        artist.set_text(text)
        artist.set_parse_math(False)
    lines = sum(text.count("\n") + 1 for text in texts)
    figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * -(-lines // columns) + 0.1)


def _wrapped(figure: Figure, text: str, inches: float, *, size: float, weight: str = "normal", indent: str = "") -> str:
    """Break the text into lines of at most this width."""
    characters = max(len(text), 1)
    while True:
        filled = textwrap.fill(text, characters, subsequent_indent=indent if characters > 20 else "")
        width = _text_width(figure, filled, size=size, weight=weight)
        if width <= inches or characters == 1:
            return filled
        characters = max(1, min(characters - 1, int(characters * max(inches / width, 0.5))))


def _text_width(figure: Figure, text: str, *, size: float, weight: str = "normal") -> float:
    """Return the width in inches."""
    probe = figure.text(0, 0, text, fontsize=size, fontweight=weight, parse_math=False)
    width = probe.get_window_extent().width
    probe.remove()
    return float(width / figure.dpi)


def save(figure: Figure, path_without_suffix: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure once for each format and return the paths; equal figures have equal bytes."""
    written = []
    for suffix in formats:
        path = path_without_suffix.with_name(f"{path_without_suffix.name}.{suffix}")
        metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
        with mpl.rc_context({"svg.hashsalt": "numdrift"}):
            figure.savefig(path, format=suffix, metadata=metadata)
        written.append(path)
    return written
