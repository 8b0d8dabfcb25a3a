"""Loss curves of several runs, and below them their drift from the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .appearance import Stroke, finish_axes, place_legend, set_log_range, titled_figure
from .curve import Curve, resolved, thinned
from .loss_drift import draw_loss_drift, legend_entries

_LOG_SPAN = 100.0
"""The ratio of the largest to the smallest positive loss above which the axis is logarithmic."""


def loss_curve(curves: Sequence[Curve], *, title: str, reference: str | None = None) -> Figure:
    """Return a figure of the losses and, if any curve has a reference, of the absolute drift below them.

    reference: the label of the curve with which curves without their own reference are compared
    """
    resolved_curves = resolved(curves, reference)
    compared = any(curve.reference is not None for curve in resolved_curves)
    figure, panels = titled_figure(title, [1.4, 1] if compared else [1])
    draw_losses(panels[0], resolved_curves)
    if compared:
        panels[0].set_xlabel("")
        draw_loss_drift(panels[1], resolved_curves)
    place_legend(figure, legend_entries(resolved_curves))
    return figure


def draw_losses(axes: Axes, curves: Sequence[Curve]) -> None:
    """Draw the finite losses of every curve; an x marks where a curve stops being finite."""
    finite = []
    for index, curve in enumerate(curves):
        steps, losses = curve.recorded()
        visible = np.where(np.isfinite(losses), losses, np.nan)
        kept = thinned(visible)
        stroke = Stroke(index, len(curves))
        axes.add_line(stroke.line(steps[kept], visible[kept]))
        finite.append(visible[~np.isnan(visible)])
        if finite[-1].size == losses.size:
            continue
        # The x is as high as the last finite loss, or near the upper edge if there was none.
        first = steps[~np.isfinite(losses)][0]
        before = losses[steps < first]
        mark = stroke.line([int(first)], [before[-1] if before.size else 0.97])
        mark.set_marker("x")
        mark.set_markersize(9)
        mark.set_markeredgecolor(stroke.color)
        mark.set_markeredgewidth(2.2)
        if not before.size:
            mark.set_transform(axes.get_xaxis_transform())
        axes.add_line(mark)
    axes.autoscale_view()
    values = np.concatenate(finite)
    if values.size and values.min() > 0 and values.max() > _LOG_SPAN * values.min():
        set_log_range(axes, values)
    finish_axes(axes, x_label="step", y_label="loss")
