"""The time of a training step in each mode: a bar for the host and one for the device, with a piece for each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .appearance import PALETTE, figure_with_title, finish_rows, name_rows, place_pieces

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
    device: the device's time for work launched in each phase; None if there is no device or if its times are missing
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
    """Return a figure with the bars below each other on one axis. `order` is the order of the phases in each bar.

    A piece of a device's bar shows the time of all work that was launched in the phase, whenever this work ran.
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
            color, hatch = _look(number)
            axes.barh(place, time, 0.62, left=begin, color=color, hatch=hatch, edgecolor="white", linewidth=0)
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
        # The total time of the step, to the right of its bar.
        axes.text(begin + 0.008 * longest, place, f"{begin:.3g} ms", va="center", fontsize=_TEXT, fontweight="bold")
    _finish(axes, [label for label, _ in bars], longest)
    looks = [(name, *_look(number)) for number, name in enumerate(order)]
    place_pieces(figure, looks, columns=min(len(order), 6) or 1, size=_TEXT)
    return figure


def _finish(axes: Axes, modes: Sequence[str], longest: float) -> None:
    axes.set_xlim(0, longest * 1.12)
    axes.set_ylim(max(len(modes), 1) - 0.5, -0.5)
    name_rows(axes, modes, size=_TEXT + 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8))
    axes.set_xlabel("milliseconds per step (mean of the traced steps)", fontsize=_TEXT + 0.5)
    axes.tick_params(axis="x", labelsize=_TEXT)
    finish_rows(axes)


def _look(number: int) -> tuple[str, str]:
    """Return the colour and the hatch of a phase."""
    return _COLORS[number % len(_COLORS)], _HATCHES[number % len(_HATCHES)]
