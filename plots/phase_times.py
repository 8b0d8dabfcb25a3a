"""The time of a training step in each mode: a bar for each mode and its device, a piece for each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator

from .appearance import PALETTE, figure_with_title

_BAR, _FRAME = 0.42, 1.35  # inches: a mode's bar with its margin; title, axis and legend
_TEXT = 8.5  # points
_LABELLED = 0.07
"""The share of the longest bar from which a piece is wide enough for its number."""

_HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "--")
"""Hatches that distinguish the pieces without colour."""

_DARK = ("#0072B2", "#000000", "#D55E00", "#009E73")
_COLORS = (*PALETTE[1:7], PALETTE[0], PALETTE[7])


@dataclass(frozen=True, slots=True)
class ModeTimes:
    """The phases of a mode's step, in milliseconds.

    phases: the host's time in each phase
    device: the device's time for work launched in each phase; None without a device, or without times of it
    """

    mode: str
    phases: Mapping[str, float]
    device: Mapping[str, float] | None = None

    @property
    def bars(self) -> list[tuple[str, Mapping[str, float]]]:
        """The bars of the mode, each with its label."""
        if self.device is None:
            return [(self.mode, self.phases)]
        return [(f"{self.mode} host", self.phases), (f"{self.mode} device", self.device)]


def phase_times(modes: Sequence[ModeTimes], order: Sequence[str], *, title: str) -> Figure:
    """Return a figure with the bars below each other on one axis, with their pieces in this order of the phases.

    A piece of a device's bar is all work that was launched in the phase, whenever it ran.
    """
    bars = [bar for mode in modes for bar in mode.bars]
    figure = figure_with_title(title, _FRAME + _BAR * len(bars))
    axes = figure.subplots()
    longest = max((sum(phases.values()) for _, phases in bars), default=0.0) or 1.0
    for place, (_, phases) in enumerate(bars):
        begin = 0.0
        for number, name in enumerate(order):
            time = phases.get(name, 0.0)
            if time <= 0:
                continue
            color = _color(number)
            axes.barh(place, time, 0.62, left=begin, color=color, hatch=_hatch(number), edgecolor="white", linewidth=0)
            if time >= _LABELLED * longest:
                axes.text(
                    begin + time / 2,
                    place,
                    f"{time:.3g}",
                    ha="center",
                    va="center",
                    fontsize=_TEXT - 1,
                    color="white" if color in _DARK else "black",
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": color, "edgecolor": "none"},  # over the hatch
                )
            begin += time
        # The total of the step, right of its bar.
        axes.text(begin + 0.008 * longest, place, f"{begin:.3g} ms", va="center", fontsize=_TEXT, fontweight="bold")
    _finish(axes, [label for label, _ in bars], longest)
    handles = [
        Patch(facecolor=_color(place), hatch=_hatch(place), edgecolor="white", linewidth=0, label=name)
        for place, name in enumerate(order)
    ]
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=min(len(order), 6) or 1,
        frameon=False,
        fontsize=_TEXT,
        handleheight=1.2,
    )
    return figure


def _finish(axes: Axes, modes: Sequence[str], longest: float) -> None:
    axes.set_xlim(0, longest * 1.12)
    axes.set_ylim(max(len(modes), 1) - 0.5, -0.5)
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(modes)))))
    for label in axes.set_yticklabels(list(modes), fontsize=_TEXT + 1):
        label.set_parse_math(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8))
    axes.set_xlabel("milliseconds of a step (mean of those traced)", fontsize=_TEXT + 0.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=_TEXT)
    axes.grid(True, axis="x", color="#d8d8d8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _color(number: int) -> str:
    return _COLORS[number % len(_COLORS)]


def _hatch(number: int) -> str:
    return _HATCHES[number % len(_HATCHES)]
