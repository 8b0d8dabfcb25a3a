"""Loss curves of a reference and of a run, and the envelope within which rounding alone would keep the run."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from numdrift.harness.drift.curve_envelope import CHAOS, FACTOR, Envelope
from numdrift.harness.drift.loss_distance import Floats

from .appearance import PALETTE, Stroke, finish_axes, isolated_points, place_legend, set_log_range, titled_figure
from .curve import thinned

Places = NDArray[np.intp]

_RUN = Stroke(1, 2)
_THIN = 0.6
_BAND, _ALPHA = PALETTE[6], 0.4
_ONSET, _DIM, _UNJUDGED = PALETTE[2], "#555555", "#eeeeee"
_TEXT = 8  # points
_RIGHT = 0.7
"""The share of the x axis beyond which marks have their text on the left."""

_DIFFERENCES = 1e-17, 1e3
_RATIOS = 1e-4, 1e6
"""The range of ratios in the panel; a larger ratio is an x at the upper edge, a smaller one is drawn at the lower
edge."""


def envelope(comparison: Envelope, *, reference: str, run: str, title: str) -> Figure:
    """Return a figure with three panels: the losses, their relative difference with the envelope, and its ratio to the
    envelope.

    reference, run: the names of the two runs in the legend. Steps that are not judged are grey, and a line marks the
    onset. Zero differences and ratios are gaps. Losses have a logarithmic scale if all of them are positive.
    """
    figure, panels = titled_figure(title, [1.35, 1.25, 0.8])
    kept = _kept(comparison)
    for axes, draw in zip(panels, (_draw_losses, _draw_difference, _draw_ratio), strict=True):
        if kept.size:
            draw(axes, comparison, kept)
            _mark(axes, comparison, named=axes is panels[0])
        else:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center", va="center", color=_DIM)
    # The legend has already named the run: "it leaves the envelope" becomes "leaves the envelope".
    words = comparison.words("it").removeprefix("it ")
    place_legend(figure, [(Stroke(0, 2), f"{reference}: reference"), (_RUN, f"{run}: {words}")])
    return figure


def _kept(comparison: Envelope) -> Places:
    """Choose the steps to draw: those that preserve the appearance of losses and ratio, and the marked steps."""
    if not (np.isfinite(comparison.reference) | np.isfinite(comparison.run)).any():
        return np.array([], dtype=np.intp)
    looks = [thinned(_finite(values)) for values in (comparison.reference, comparison.run, comparison.ratio)]
    marks = [step for step in (comparison.onset, comparison.horizon) if step is not None]
    marked = np.flatnonzero(np.isin(comparison.steps, marks))
    kept: Places = np.unique(np.concatenate([*looks, marked]))
    return kept


def _draw_losses(axes: Axes, comparison: Envelope, kept: Places) -> None:
    """Draw both curves, and the envelope as a band around the reference at judged steps."""
    steps, a, b, wide = (
        comparison.steps[kept],
        comparison.reference[kept],
        comparison.run[kept],
        comparison.envelope[kept],
    )
    wide = np.where(np.isin(steps, comparison.judged), wide, np.nan)
    values = np.concatenate([a, b])
    values = values[np.isfinite(values)]
    positive = values.min() > 0
    with np.errstate(invalid="ignore"):
        low, high = a - wide, a + wide
    # On a logarithmic axis the band must not reach zero; a decade below the curves it is out of sight.
    lowest = values.min() / 10 if positive else -np.inf
    _fill(axes, steps, np.maximum(low, lowest), high)
    for index, curve in enumerate((a, b)):
        axes.add_line(Stroke(index, 2).line(steps, _finite(curve)))
    axes.autoscale_view()
    if positive:
        set_log_range(axes, values)
    else:
        margin = 0.05 * float(values.max() - values.min()) or 1.0
        axes.set_ylim(float(values.min()) - margin, float(values.max()) + margin)
    finish_axes(axes, y_label="loss")


def _draw_difference(axes: Axes, comparison: Envelope, kept: Places) -> None:
    """Draw the difference of the losses relative to the reference's loss, and the envelope as an area below."""
    steps, wide, apart = (
        comparison.steps[kept],
        _positive(comparison.relative[kept]),
        _positive(comparison.difference[kept]),
    )
    _draw_with_isolated_points(axes, steps, np.clip(apart, *_DIFFERENCES))
    values = np.concatenate([wide, apart])
    values = values[~np.isnan(values)]
    axes.autoscale_view()
    if values.size:
        set_log_range(axes, np.clip([*values, CHAOS], *_DIFFERENCES))
        _fill(axes, steps, np.full(wide.size, axes.get_ylim()[0]), wide)
        runs = (
            "" if not comparison.members else " (1 run)" if comparison.members == 1 else f" ({comparison.members} runs)"
        )
        text = axes.text(
            0.985, 0.035, f"area: effect of a one-ULP change of the initial parameters{runs}",
            transform=axes.transAxes, ha="right", va="bottom", fontsize=_TEXT, color=_DIM, zorder=4,
        )  # fmt: skip
        text.set_bbox({"facecolor": "white", "alpha": 0.65, "edgecolor": "none", "pad": 1.5})
        _mark_level(axes, CHAOS, "1 %")
    finish_axes(axes, y_label="relative difference")


def _fill(axes: Axes, steps: NDArray[np.int64], low: Floats, high: Floats) -> None:
    axes.fill_between(steps, low, high, color=_BAND, alpha=_ALPHA, linewidth=0, zorder=1.2)


def _draw_ratio(axes: Axes, comparison: Envelope, kept: Places) -> None:
    """Draw the ratio of the difference to the envelope, with a line at the factor from which a step is outside."""
    steps, ratio = comparison.steps[kept], comparison.ratio[kept]
    shown = np.where(ratio > 0, np.clip(ratio, *_RATIOS), np.nan)
    _draw_with_isolated_points(axes, steps, np.where(ratio > _RATIOS[1], np.nan, shown))
    axes.autoscale_view()
    values = shown[~np.isnan(shown)]
    set_log_range(axes, np.concatenate([values, [FACTOR / 10, FACTOR]]))
    above = steps[ratio > _RATIOS[1]]
    if above.size:
        # Neighbouring marks would merge into a bar, so only some are drawn.
        above = above[:: max(1, above.size // 40)]
        axes.plot(
            above, [0.93] * above.size, linestyle="none", marker="x", markersize=6, markeredgewidth=1.6,
            color=_RUN.color, transform=axes.get_xaxis_transform(), zorder=3,
        )  # fmt: skip
    _mark_level(axes, FACTOR, f"{FACTOR:g}")
    finish_axes(axes, x_label="step", y_label="difference\n/ envelope")


def _draw_with_isolated_points(axes: Axes, steps: NDArray[np.int64], values: Floats) -> None:
    """Draw a line with gaps; a point between two gaps becomes a dot."""
    line = _RUN.line(steps, values, scale=_THIN)
    line.set_linestyle("-")
    line.set_marker("")
    axes.add_line(line)
    isolated = isolated_points(values)
    if isolated.any():
        axes.plot(steps[isolated], values[isolated], linestyle="none", marker="o", markersize=2.2, color=_RUN.color)


def _mark_level(axes: Axes, level: float, text: str) -> None:
    axes.axhline(level, color=_DIM, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1.5)
    axes.annotate(
        text, (1, level), xycoords=("axes fraction", "data"), xytext=(3, 0), textcoords="offset points",
        va="center", fontsize=_TEXT, color=_DIM, annotation_clip=False,
    )  # fmt: skip


def _mark(axes: Axes, comparison: Envelope, *, named: bool) -> None:
    """Grey the steps from the horizon on, or from the end of the perturbed runs, and draw a line at the onset."""
    after = comparison.steps[comparison.steps > comparison.judged[-1]] if comparison.judged.size else comparison.steps
    if after.size and comparison.judged.size < comparison.steps.size:
        left, right = axes.get_xlim()
        start = float(after[0]) if comparison.judged.size else left
        axes.axvspan(start, right, color=_UNJUDGED, zorder=0.5, linewidth=0)
        axes.set_xlim(left, right)  # the span has widened the limits
        if named:
            _name(axes, start, f"not judged from step {after[0]} on", _DIM, line=comparison.onset is not None)
    if comparison.onset is not None:
        axes.axvline(comparison.onset, color=_ONSET, linewidth=1.1, zorder=1.6)
        if named:
            _name(axes, comparison.onset, f"leaves the envelope at step {comparison.onset}", _ONSET, line=0)


def _name(axes: Axes, step: float, text: str, color: str, *, line: int) -> None:
    """Write text above the axes, in line `line` counted from below, on the side of the step that has room."""
    left, right = axes.get_xlim()
    leftwards = (step - left) / (right - left) > _RIGHT
    axes.annotate(
        text, (step, 1), xycoords=("data", "axes fraction"), xytext=(0, 2 + line * (_TEXT + 2)),
        textcoords="offset points", ha="right" if leftwards else "left", va="bottom", fontsize=_TEXT,
        color=color, annotation_clip=False,
    )  # fmt: skip


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _positive(values: Floats) -> Floats:
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)
