"""A heatmap of tensors' drift, within or beyond rounding: rows are tensors, columns are steps, colours are scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from numpy.typing import NDArray

from .appearance import name_rows, titled_figure

Table = NDArray[np.float64]
"""Scores by tensor and column, NaN where a tensor was not compared."""

INSPECT, BEYOND = 4.0, 16.0
"""Scores up to INSPECT are rounding; scores from BEYOND on are beyond rounding."""

MOST_TENSORS = 40
_MOST_COLUMNS = 240
_NAME = 50  # characters
_LOWEST, _HIGHEST = 0.25, 1e6
"""The range of scores that colours distinguish."""

_COLORS = (
    (_LOWEST, "#dcebf7"),
    (INSPECT, "#8cb8dd"),
    (INSPECT, "#fbd46d"),
    (BEYOND, "#f0a02c"),
    (BEYOND, "#dd5a1f"),
    (_HIGHEST, "#54082a"),
)
_INFINITE, _ABSENT = "#2b0014", "#e4e4e4"
_TEXT = 8  # points
_ROW, _FRAME = 0.17, 1.7  # inches: the height of a row, and of everything around the rows
_CELLS = 5.4  # inches: the approximate width of all columns together
_DIGIT = 0.075  # inches
_GREY = "#555555"
_TAPED: Literal[7] = 7
"""Matplotlib's number for a triangle that points down and lies above its place."""


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """The scores of one step's tensors; a score may be infinite. `taped`: whether this step's noise was measured."""

    step: int
    scores: Mapping[str, float] = field(default_factory=dict)
    taped: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """The steps as drawn: a column shows one step, or the worst scores of several neighbouring steps."""

    steps: tuple[int, ...]
    taped: tuple[bool, ...]
    together: int
    scores: Table


def drift_heatmap(rows: Sequence[ScoredStep], *, title: str) -> Figure:
    """Return a figure with a row for each of the worst tensors and a column for each step.

    Tensors are in the order of the input; a line of text counts those beyond `MOST_TENSORS`. Identical tensors are
    blank, infinite scores are marked with an x, and tensors that a step did not compare are grey. Steps are evenly
    spaced whatever their numbers. If there are many, neighbouring steps share a column, which shows the worst of them.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.scores))
    table = _table(rows, names)
    shown = _worst(table)
    columns = _columns(rows, table[shown])
    figure, (axes,) = titled_figure(title, [1])
    figure.set_figheight(max(len(shown) * _ROW, 1.0) + _FRAME)
    if not shown.size or not columns.steps:
        axes.set_axis_off()
        axes.text(0.5, 0.5, _why_empty(names, rows), transform=axes.transAxes, ha="center", color=_GREY)
        return figure
    _draw_cells(figure, axes, columns)
    _label(axes, columns, [names[place] for place in shown])
    _explain(figure, columns, _left_out(table, shown))
    return figure


def _table(rows: Sequence[ScoredStep], names: Sequence[str]) -> Table:
    table = np.full((len(names), len(rows)), np.nan)
    places = {name: place for place, name in enumerate(names)}
    for column, row in enumerate(rows):
        for name, score in row.scores.items():
            if np.isnan(score) or score < 0:
                raise ValueError(f"step {row.step}: {name} has the score {score}; scores are at least 0")
            table[places[name], column] = score
    return table


def _worst(table: Table) -> NDArray[np.intp]:
    """Choose the tensors to draw: those with the largest scores, but none that is identical at every step. Return their
    places in ascending order."""
    largest = np.nanmax(table, axis=1, initial=0.0)
    ranked = np.argsort(-largest, kind="stable")[:MOST_TENSORS]
    chosen: NDArray[np.intp] = np.sort(ranked[largest[ranked] > 0])
    return chosen


def _columns(rows: Sequence[ScoredStep], table: Table) -> Columns:
    together = max(1, -(-len(rows) // _MOST_COLUMNS))
    starts = range(0, len(rows), together)
    groups = [rows[start : start + together] for start in starts]
    scores = [np.fmax.reduce(table[:, start : start + together], axis=1) for start in starts]
    return Columns(
        steps=tuple(group[0].step for group in groups),
        taped=tuple(any(row.taped for row in group) for group in groups),
        together=together,
        scores=np.stack(scores, axis=1) if scores else table,
    )


def _draw_cells(figure: Figure, axes: Axes, columns: Columns) -> None:
    """Draw the colours, their colour bar, and the marks of infinite scores."""
    norm = LogNorm(_LOWEST, _HIGHEST)
    stops = [(float(norm(score)), color) for score, color in _COLORS]
    graded = LinearSegmentedColormap.from_list("scores", stops, N=4096)
    colors = graded.with_extremes(bad=(0, 0, 0, 0), over=_INFINITE)
    scores = columns.scores  # [tensors, columns]
    # Identical tensors are left blank; tensors that were not compared are drawn separately, in grey.
    drawn = np.ma.masked_where(np.isnan(scores) | (scores == 0), scores.clip(_LOWEST, 10 * _HIGHEST))
    absent = np.ma.masked_where(~np.isnan(scores), np.zeros(scores.shape))
    tensors, count = scores.shape
    edges = np.arange(count + 1) - 0.5, np.arange(tensors + 1) - 0.5
    grey = LinearSegmentedColormap.from_list("absent", [_ABSENT, _ABSENT])
    axes.pcolormesh(*edges, absent, cmap=grey, zorder=1)
    axes.add_patch(Rectangle((-0.5, -0.5), count, tensors, fill=False, edgecolor="#9a9a9a", linewidth=0.8, zorder=2.5))
    cells = axes.pcolormesh(*edges, drawn, cmap=colors, norm=norm, zorder=1)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(tensors - 0.5, -0.5)
    axes.hlines(np.arange(1, tensors) - 0.5, -0.5, count - 0.5, color="#ededed", linewidth=0.6, zorder=1.5)
    bar = figure.colorbar(cells, ax=axes, extend="max", fraction=0.035, pad=0.015, aspect=26, shrink=1.0)
    ticks = [_LOWEST, 1.0, INSPECT, BEYOND, 1e2, 1e3, 1e4, 1e5, _HIGHEST]
    bar.set_ticks(ticks, labels=[_tick(tick) for tick in ticks])
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=_TEXT)
    for level in (INSPECT, BEYOND):
        bar.ax.axhline(level, color="black", linewidth=1.2)
    bar.set_label("score: drift / rounding noise", fontsize=_TEXT + 1)
    # Infinite scores have a mark; if columns are too narrow for a mark each, only some have one.
    size = min(_CELLS / count, _ROW) * 72 * 0.5
    every = 1 if size >= 3 else int(np.ceil(6 / (2 * size)))
    for place, row in enumerate(scores):
        infinite = np.flatnonzero(np.isinf(row))
        runs = np.split(infinite, np.flatnonzero(np.diff(infinite) > 1) + 1)
        marked = np.concatenate([run[::every] for run in runs])
        axes.plot(
            marked, [place] * marked.size, linestyle="none", marker="x", color="white", markersize=max(size, 3.0),
            markeredgewidth=1.2, zorder=2,
        )  # fmt: skip


def _tick(score: float) -> str:
    return f"{score:g}" if score < 1e3 else f"$10^{{{round(np.log10(score))}}}$"


def _label(axes: Axes, columns: Columns, names: Sequence[str]) -> None:
    """Name the tensors, write as many step numbers as fit, and mark the steps that have a tape."""
    # Long paths lose their front; if that makes two names equal, they lose their middle instead.
    fronts, middles = list(names), list(names)
    for place, name in enumerate(names):
        if len(name) > _NAME:
            # `gradient 0 module.module.h.0.attn.weight` becomes `gradient 0 …h.0.attn.weight`.
            kind, space, path = name.rpartition(" ")
            end = path[-max(_NAME - len(kind) - 2, _NAME // 2) :]
            _, dot, whole = end.partition(".")
            fronts[place] = f"{kind}{space}…{whole if dot else end}"
            middles[place] = f"{name[: _NAME // 2]}…{name[-(_NAME // 2) :]}"
    texts = [
        next(
            (text for text, alternatives in ((front, fronts), (middle, middles)) if alternatives.count(text) == 1), name
        )
        for name, front, middle in zip(names, fronts, middles, strict=True)
    ]
    name_rows(axes, texts, size=_TEXT)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    count = len(columns.steps)
    digits = len(str(max(columns.steps)))
    room = _CELLS / count
    stride = max(1, int(np.ceil((digits + 1) * _DIGIT / room)))
    places = list(range(0, count, stride))
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FixedFormatter([str(columns.steps[place]) for place in places]))
    axes.tick_params(axis="x", labelsize=_TEXT, length=2.5)
    several = f" (each column: the worst of {columns.together} steps that were compared)"
    axes.set_xlabel(f"step{several if columns.together > 1 else ''}", fontsize=_TEXT + 1)
    taped = [place for place, is_taped in enumerate(columns.taped) if is_taped]
    axes.plot(
        taped, [1.0] * len(taped), linestyle="none", marker=_TAPED, markersize=5, color="black",
        transform=axes.get_xaxis_transform(), clip_on=False, zorder=4,
    )  # fmt: skip


def _left_out(table: Table, shown: NDArray[np.intp]) -> str:
    """Describe the number of tensors that are not drawn, or return "" if all are drawn."""
    largest = np.nanmax(np.delete(table, shown, axis=0), axis=1, initial=0.0)
    identical, fewer = int((largest == 0).sum()), int((largest > 0).sum())
    remarks = []
    if fewer:
        more = "1 more tensor" if fewer == 1 else f"{fewer} more tensors"
        highest = float(largest.max())
        above = f"none above {highest:.3g}" if np.isfinite(highest) else "some infinite"
        remarks.append(f"{more}, {above}")
    if identical:
        remarks.append(f"{identical} identical at every step")
    return f"not drawn: {'; '.join(remarks)}" if remarks else ""


def _why_empty(names: Sequence[str], rows: Sequence[ScoredStep]) -> str:
    if not names:
        return "no tensor was compared"
    tensors = "1 tensor is" if len(names) == 1 else f"all {len(names)} tensors are"
    steps = "the step that was" if len(rows) == 1 else f"all {len(rows)} steps that were"
    return f"{tensors} identical at {steps} compared"


def _explain(figure: Figure, columns: Columns, left_out: str) -> None:
    """Explain, below the panel, the symbols that occur in it."""
    scores = columns.scores
    nothing = Line2D([], [], linestyle="none")
    cross = Line2D([], [], linestyle="none", marker="x", color="white", markersize=5, markeredgewidth=1.2)
    taped = Line2D([], [], linestyle="none", marker=_TAPED, markersize=5, color="black")
    signs = (
        (any(columns.taped), taped, "noise measured at this step"),
        (
            bool((scores == 0).any()),
            Patch(facecolor="white", edgecolor="#9a9a9a", linewidth=0.6),
            "identical",
        ),
        (bool(np.isinf(scores).any()), (Patch(facecolor=_INFINITE), cross), "infinite"),
        (bool(np.isnan(scores).any()), Patch(facecolor=_ABSENT), "not compared"),
        (bool(left_out), nothing, left_out),
    )
    entries = [(handle, text) for occurs, handle, text in signs if occurs]
    if entries:
        handles, texts = zip(*entries, strict=True)
        figure.legend(
            handles, texts, loc="outside lower left", ncols=len(entries), frameon=False, fontsize=_TEXT,
            columnspacing=1.2, handlelength=1.6,
        )  # fmt: skip
