"""The error of kernels by input: the envelope over all inputs, and the neighbourhood of the worst input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter
from numpy.typing import NDArray

from .appearance import Stroke, finish_axes, place_legend, titled_figure

Floats = NDArray[np.float64]

CORRECT = 0.5
"""The largest error, in ULP, of a correctly rounded result."""

_LOG_FROM = 8.0
"""The error in ULP above which the axis is logarithmic."""

_LOWEST, _HIGHEST = 0.05, 1e9
"""The widest range of a logarithmic axis, in ULP; smaller or larger errors are outside of it."""

_NEGLIGIBLE = 0.005
"""The axis of inputs is cut off at its ends where no kernel's largest error is above this many ULP."""

_POINTS = 180
"""The maximum number of points of a line in one panel; if there are more bins, neighbours are merged."""

_FEW_DECADES = 2.5
"""The length, in decades, below which an axis of inputs has ticks at 1, 2 and 5 instead of powers of ten."""

_TICKS = 6
_SMALLEST_MARKER, _MARKER_SPAN = 3.5, 3.5  # points; the first kernel's marker is the largest and under the others
_LINE_SCALE = 0.6
_CONNECTED = 6
"""Fewer bins than this are drawn as markers without a line, which would cross gaps between measured inputs."""

_HEIGHTS = (1.25, 1.0)
_TEXT_SIZE = 9  # points
_FAINT = 0.5
_DIM = "#444444"


@dataclass(frozen=True, slots=True)
class UlpEnvelope:
    """The errors of one kernel in ULP, a row for each bin of inputs.

    inputs: an array [n] of one input from each bin, never zero
    largest, mean: arrays [n] of the largest and of the mean magnitude of the errors
    """

    label: str
    inputs: Floats
    largest: Floats
    mean: Floats

    def side(self, *, negative: bool) -> tuple[Floats, Floats, Floats]:
        """Return log10 |input|, largest error and mean error of the inputs of one sign, sorted by |input|."""
        chosen = np.flatnonzero((self.inputs < 0) == negative)
        places = np.log10(np.abs(self.inputs[chosen]))
        order = np.argsort(places)
        return places[order], self.largest[chosen][order], self.mean[chosen][order]


@dataclass(frozen=True, slots=True)
class UlpZoom:
    """Signed errors in ULP at consecutive inputs.

    center: the input in the middle, as text
    offsets: an array [m] of the inputs' places on the number line, counted from the center
    inputs: an array [m] of the inputs themselves
    errors: by kernel label, an array [m] with NaN where a result is not finite
    """

    center: str
    offsets: NDArray[np.int64]
    inputs: Floats
    errors: dict[str, Floats]


def ulp_error(envelopes: Sequence[UlpEnvelope], *, title: str, zoom: UlpZoom | None = None) -> Figure:
    """Return a figure of the largest and mean error by input, negative inputs to the left. `zoom` is drawn below.

    Raises ValueError if there is no error to draw, or two envelopes have the same label.
    """
    labels = [envelope.label for envelope in envelopes]
    if not any(envelope.inputs.size for envelope in envelopes):
        raise ValueError("nothing to draw: no kernel has a measured input")
    if len(set(labels)) < len(labels):
        raise ValueError(f"kernels need different labels: {', '.join(labels)}")
    figure, panels = titled_figure(title, _HEIGHTS if zoom else _HEIGHTS[:1])
    for axes in panels:
        axes.remove()
    _draw_envelopes(figure, envelopes, rows=2 if zoom else 1)
    if zoom:
        _draw_zoom(figure, zoom, labels)
    strokes = [Stroke(index, len(labels)) for index in range(len(labels))]
    entries = [(stroke, described(envelope)) for stroke, envelope in zip(strokes, envelopes, strict=True)]
    place_legend(figure, entries)
    return figure


def described(envelope: UlpEnvelope) -> str:
    """Return the label with the largest error, and a note if the line of the errors leaves the axis."""
    if not envelope.largest.size:
        return f"{envelope.label}: no measured input"
    largest = float(envelope.largest.max())
    cut = f" (cut off at {_HIGHEST:.0e})".replace("e+0", "e") if largest > _HIGHEST else ""
    return f"{envelope.label}: max {_ulp(largest)} ULP{cut}"


def _ulp(error: float) -> str:
    return f"{error:.3f}" if error < 10 else f"{error:.4g}"


def _draw_envelopes(figure: Figure, envelopes: Sequence[UlpEnvelope], *, rows: int) -> None:
    signs = [
        sign
        for sign in (True, False)
        if any(kernel_envelope.side(negative=sign)[0].size for kernel_envelope in envelopes)
    ]
    grid = figure.add_gridspec(rows, len(signs), height_ratios=_HEIGHTS[:rows])
    # The range of log10 |input| with errors, widened by half a decade; all inputs if there are no errors.
    sides = [kernel_envelope.side(negative=sign) for kernel_envelope in envelopes for sign in (True, False)]
    every = np.concatenate([side[0] for side in sides])
    errors = np.concatenate([side[1] for side in sides])
    shown = every[errors > _NEGLIGIBLE] if (errors > _NEGLIGIBLE).any() else every
    low, high = max(shown.min() - 0.5, every.min()), min(shown.max() + 0.5, every.max())
    wider = max(0.0, 1 - (high - low)) / 2
    low, high = float(low - wider), float(high + wider)
    highest = max(float(kernel_envelope.largest.max(initial=0.0)) for kernel_envelope in envelopes)
    lowest = _LOWEST / 10 if highest > _LOG_FROM else 0.0  # zero errors are below a logarithmic axis
    first: Axes | None = None
    for column, negative in enumerate(signs):
        axes = figure.add_subplot(grid[0, column], sharey=first)
        for index, envelope in enumerate(envelopes):
            stroke = Stroke(index, len(envelopes))
            places, largest, mean = _together(*envelope.side(negative=negative), low, high)
            faint = stroke.line(places, np.maximum(mean, lowest), scale=0.5)
            faint.set_marker("")
            faint.set_alpha(_FAINT)
            faint.set_zorder(1.8)
            axes.add_line(faint)
            line = stroke.line(places, np.maximum(largest, lowest), scale=_LINE_SCALE if stroke.count > 1 else 1.2)
            if places.size < _CONNECTED:
                line.set_linestyle("none")
                faint.set_linestyle("none")
                faint.set_marker("_")
                faint.set_markeredgecolor(stroke.color)
            axes.add_line(line)
        axes.set_xlim(low, high)
        _finish(axes, highest, "" if first else "error, ULP (faint: mean)")
        _label_inputs(axes, negative=negative)
        if first:
            axes.tick_params(labelleft=False)
        first = first or axes
    axes.annotate(
        "0.5", (1, CORRECT), xycoords=("axes fraction", "data"), xytext=(3, 0), va="center",
        textcoords="offset points", fontsize=_TEXT_SIZE, color=_DIM, annotation_clip=False,
    )  # fmt: skip


def _together(places: Floats, largest: Floats, mean: Floats, low: float, high: float) -> tuple[Floats, Floats, Floats]:
    """Return the rows in a range. If there are more than `_POINTS`, merge neighbours into their largest error and the
    mean of their means."""
    inside = (places >= low) & (places <= high)
    places, largest, mean = places[inside], largest[inside], mean[inside]
    if places.size <= _POINTS:
        return places, largest, mean
    starts = np.arange(0, places.size, -(-places.size // _POINTS))
    counts = np.diff([*starts, places.size])
    return (
        np.add.reduceat(places, starts) / counts,
        np.maximum.reduceat(largest, starts),
        np.add.reduceat(mean, starts) / counts,
    )


def _finish(axes: Axes, highest: float, y_label: str) -> None:
    if highest > _LOG_FROM:
        axes.set_yscale("log")
        axes.set_ylim(_LOWEST, _HIGHEST if highest > _HIGHEST else highest**1.05 * 1.5)
    else:
        axes.set_ylim(0, max(highest, CORRECT) * 1.12)
    axes.axhline(CORRECT, color=_DIM, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1.5)
    finish_axes(axes, y_label=y_label)


def _label_inputs(axes: Axes, *, negative: bool) -> None:
    """Label the axis with inputs instead of their logarithms; negative inputs grow to the left."""
    sign = "-" if negative else ""
    low, high = axes.get_xlim()
    powers = np.arange(np.ceil(low), np.floor(high) + 1)
    if high - low < _FEW_DECADES:
        places = np.log10([digit * 10.0**power for power in [powers.min(initial=high) - 1, *powers]
                           for digit in (1, 2, 5)])  # fmt: skip
        texts = [f"{sign}{10**place:.3g}" for place in places]
    else:
        places = powers[powers % -(-powers.size // _TICKS) == 0]
        texts = [f"${sign}10^{{{place:.0f}}}$" for place in places]
    inside = (places >= low) & (places <= high)
    axes.xaxis.set_major_locator(FixedLocator(list(places[inside])))
    axes.xaxis.set_major_formatter(FixedFormatter([text for text, shown in zip(texts, inside, strict=True) if shown]))
    axes.set_xlabel("negative inputs" if negative else "positive inputs", fontsize=_TEXT_SIZE + 1)
    if negative:
        axes.invert_xaxis()


def _draw_zoom(figure: Figure, zoom: UlpZoom, labels: Sequence[str]) -> None:
    grid = figure.axes[0].get_gridspec()
    assert grid is not None
    axes = figure.add_subplot(grid[1, :])
    drawn = [(index, zoom.errors[label]) for index, label in enumerate(labels) if label in zoom.errors]
    for index, errors in drawn:
        line = Stroke(index, len(labels)).line(zoom.offsets, errors)
        line.set_linestyle("none")
        line.set_markevery(None)
        line.set_markersize(_SMALLEST_MARKER + _MARKER_SPAN * (1 - (index + 1) / len(labels)))
        line.set_markeredgewidth(0)
        axes.add_line(line)
    axes.autoscale_view()
    where = f"{zoom.inputs.min():.6g} to {zoom.inputs.max():.6g}, counted from {zoom.center}"
    finish_axes(axes, x_label=f"consecutive inputs {where}", y_label="signed error, ULP")
    finite = np.concatenate([errors[np.isfinite(errors)] for _, errors in drawn])
    if finite.size and np.abs(finite).max() > _LOG_FROM:
        _set_signed_log(axes, float(max(finite.min(), -_HIGHEST)), float(min(finite.max(), _HIGHEST)))
    axes.axhline(0, color="#888888", linewidth=0.8, zorder=1.5)


def _set_signed_log(axes: Axes, low: float, high: float) -> None:
    """Make the y axis linear up to one ULP and logarithmic beyond."""
    # The decades by which the axis extends beyond one ULP, downwards and upwards: at least 0.3.
    below, above = (
        max(float(np.log10(max(abs(error), 1.0))) * 1.05, 0.3) if error else 0.3
        for error in (min(low, 0.0), max(high, 0.0))
    )
    stride = max(1, round((below + above + 2) / _TICKS))
    least = 0 if stride == 1 else stride
    powers = range(least, int(above) + 1, stride), range(least, int(below) + 1, stride)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(-(10**below), 10**above)
    ticks = [0.0, *(10.0**power for power in powers[0]), *(-(10.0**power) for power in powers[1])]

    def written(error: float, _: object) -> str:
        if abs(error) <= 1:
            return f"{error:.0f}"
        return f"${'-' if error < 0 else ''}10^{{{np.log10(abs(error)):.0f}}}$"

    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(written))
    axes.yaxis.set_minor_locator(FixedLocator([]))
