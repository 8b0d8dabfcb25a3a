"""Loss drift: the distance of each run's loss from its reference's, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from numdrift.harness.drift.loss_distance import (
    Floats,
    Steps,
    absolute_difference,
    common_losses,
    differs,
    relative_difference,
)

from .appearance import Stroke, finish_axes, isolated_points, place_legend, set_log_range, titled_figure
from .curve import Curve, resolved, thinned

_SCALE = 0.5
"""The scale of line widths: drift is noisy, so its lines are thinner than those of losses."""


@dataclass(frozen=True, slots=True)
class CurveDrift:
    """The drift of one curve from its reference, at the steps that both have."""

    label: str
    reference: str
    steps: Steps
    absolute: Floats
    relative: Floats
    first_differing_step: int | None
    lengths_differ: bool = False

    def described(self) -> str:
        """Describe where the curve leaves its reference, and how far it drifts."""
        if not self.steps.size:
            return f"no step in common with {self.reference}"
        if self.first_differing_step is None:
            # it is unknown how a shorter run would have continued
            extent = f" in {self.steps.size:,} common steps" if self.lengths_differ else ""
            return f"identical to {self.reference}{extent}"
        finite = self.absolute[np.isfinite(self.absolute)]
        partly = finite.size < self.absolute.size and finite.any()
        largest = f"{finite.max():.1e} where finite" if partly else f"{self.absolute.max():.1e}"
        return f"drifts from step {self.first_differing_step} on, max {largest}"


def curve_drifts(curves: Sequence[Curve]) -> list[CurveDrift | None]:
    """Return the drift of each curve from its reference, or None for a curve without a reference."""
    # Labels are unique and references exist: `resolved` has checked both.
    by_label = {curve.label: curve for curve in curves}
    return [None if curve.reference is None else _drift(by_label[curve.reference], curve) for curve in curves]


def legend_entries(curves: Sequence[Curve]) -> list[tuple[Stroke, str]]:
    """Return the stroke and the text of each curve, as a legend shows them."""
    references = {curve.reference for curve in curves}
    entries = []
    for index, (curve, drift) in enumerate(zip(curves, curve_drifts(curves), strict=True)):
        compared = drift.described() if drift else "reference" if curve.label in references else ""
        facts = ", ".join(fact for fact in (compared, curve.non_finite()) if fact)
        text = f"{curve.titled()}: {facts}" if facts else curve.titled()
        entries.append((Stroke(index, len(curves)), text))
    return entries


def draw_loss_drift(axes: Axes, curves: Sequence[Curve], *, relative: bool = False) -> None:
    """On a logarithmic axis, draw the drift of each curve that has a reference.

    A step without drift or with infinite drift is a gap. A point between two gaps has a marker. `curves` are all curves
    of the figure, references included, so that each curve has the same stroke in all its axes and in the legend.
    """
    drawn = []
    for index, drift in enumerate(curve_drifts(curves)):
        if drift is None:
            continue
        values = drift.relative if relative else drift.absolute
        visible = np.where((values > 0) & np.isfinite(values), values, np.nan)
        if np.isnan(visible).all():
            continue
        drawn.append(visible[~np.isnan(visible)])
        kept = thinned(visible)
        stroke, steps, shown = Stroke(index, len(curves)), drift.steps[kept], visible[kept]
        axes.add_line(stroke.line(steps, shown, scale=_SCALE))
        isolated = isolated_points(shown)
        if isolated.any():
            points = stroke.line(steps[isolated], shown[isolated], scale=_SCALE)
            points.set_linestyle("none")
            points.set_markevery(None)
            axes.add_line(points)
        axes.autoscale_view()
    if drawn:
        set_log_range(axes, np.concatenate(drawn))
    label = "|loss - reference|"
    finish_axes(axes, x_label="step", y_label=f"{label} / |reference|" if relative else label)
    if not drawn:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no drift to draw", transform=axes.transAxes, ha="center", va="center", color="#555555")


def loss_drift(curves: Sequence[Curve], *, title: str, reference: str | None = None) -> Figure:
    """Return a figure of the absolute and, below it, the relative loss drift.

    reference: the label of the curve with which curves without their own reference are compared
    """
    resolved_curves = resolved(curves, reference)
    figure, (above, below) = titled_figure(title, [1, 1])
    draw_loss_drift(above, resolved_curves)
    above.set_xlabel("")
    draw_loss_drift(below, resolved_curves, relative=True)
    place_legend(figure, legend_entries(resolved_curves))
    return figure


def _drift(reference: Curve, curve: Curve) -> CurveDrift:
    steps, a, b = common_losses(reference.steps, reference.losses, curve.steps, curve.losses)
    differing = np.flatnonzero(differs(a, b))
    return CurveDrift(
        label=curve.label,
        reference=reference.label,
        steps=steps,
        absolute=absolute_difference(a, b),
        relative=relative_difference(a, b),
        first_differing_step=int(steps[differing[0]]) if differing.size else None,
        # for a run that failed, the legend already states its last step
        lengths_differ=len(reference.steps) != len(curve.steps) and curve.status == reference.status == "complete",
    )
