"""Graphs drawn into files, PNG or SVG, without a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from ...records.graph_record import Graph
from ..culprit_marks import Mark
from .drawing_layout import Point, lay_out, neighbourhood
from .picture import Box, Picture, picture_of

WHOLE, PART = 250, 100
"""A graph of more nodes than the first is drawn in part, the second number of nodes of it."""

DPI = 144
PIXELS = 30_000
"""The longest side of a PNG; beyond it the picture is drawn with fewer dots."""

POINTS_AN_INCH = 72
HEADER = 40.0  # points
SMALLEST = 480.0  # points, of the width: room for the title

FILLS = {"forward": "#d9e8f5", "backward": "#fbe5d0", "optimizer": "#d8f0e6", "": "#e8e8e8"}
STROKES = {"forward": "#0072B2", "backward": "#B65000", "optimizer": "#00795A", "": "#666666"}
"""Blue, orange and green of Okabe and Ito, darkened for lines."""

CULPRIT = "#CC0000"

HEAD = FontProperties(family="DejaVu Sans", size=9, weight="bold")
TEXT = FontProperties(family="DejaVu Sans", size=7)
LINE = {"head": 12.5, "text": 9.6}  # points
PADDING = (9.0, 5.0)  # points


@dataclass(frozen=True, slots=True)
class Style:
    fill: str
    stroke: str
    width: float
    rounding: float


def draw(graph: Graph, marks: Mapping[str, Mark], path: Path, kind: str) -> str:
    """Draw a graph into a file, `png` or `svg`, and return a note on what was left out of it, "" for nothing.

    Of a large graph the nodes around the marked ones are drawn, or without any its first ones.
    """
    shown = graph if len(graph.nodes) <= WHOLE else neighbourhood(graph, marks.keys(), PART)
    left_out = "" if shown is graph else _left_out(graph, shown, marks)
    figure = figure_of(picture_of(shown, marks, left_out))
    metadata = {"png": {"Software": None}, "svg": {"Date": None}}[kind]
    longest = max(figure.get_size_inches())
    with mpl.rc_context({"svg.hashsalt": "numdrift", "svg.fonttype": "none"}):
        figure.savefig(path, format=kind, metadata=metadata, dpi=min(DPI, PIXELS / longest))
    return left_out


def _left_out(graph: Graph, shown: Graph, marks: Mapping[str, Mark]) -> str:
    marked = marks.keys() & {node.name for node in graph.nodes}
    around = "around the culprits" if marked else "from the start"
    return f"{len(shown.nodes):,} of {len(graph.nodes):,} nodes, {around}"


def figure_of(picture: Picture) -> Figure:
    """Lay the picture out and draw it: one point of the layout is one point on paper."""
    figure = Figure(figsize=(1, 1), facecolor="white")
    canvas = FigureCanvasAgg(figure)
    sizes = {name: _size(canvas, box) for name, box in picture.boxes.items()}
    layout = lay_out(sizes, picture.lines)
    width, height = max(layout.width, SMALLEST), layout.height + HEADER
    left = (width - layout.width) / 2
    figure.set_size_inches(width / POINTS_AN_INCH, height / POINTS_AN_INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    _write(axes, 10, 16, picture.title, HEAD, ha="left")
    _write(axes, 10, 30, picture.note, TEXT, ha="left", color="#444444")
    centres = {name: (x + left, y + HEADER) for name, (x, y) in layout.centres.items()}
    for (a, b), points in zip(picture.lines, layout.lines, strict=True):
        inner = [(x + left, y + HEADER) for x, y in points[1:-1]]
        start = _border(centres[a], sizes[a], inner[0], below=True)
        end = _border(centres[b], sizes[b], inner[-1], below=False)
        axes.add_patch(_arrow([start, *inner, end]))
    for name, box in picture.boxes.items():
        _draw_box(axes, box, centres[name], sizes[name])
    return figure


def _size(canvas: FigureCanvasAgg, box: Box) -> tuple[float, float]:
    renderer: RendererAgg = canvas.get_renderer()  # type: ignore[no-untyped-call]
    measure: Any = renderer.get_text_width_height_descent

    def width(text: str, font: FontProperties) -> float:
        pixels: float = measure(text, font, ismath=False)[0]
        return pixels * (POINTS_AN_INCH / float(renderer.dpi))

    small = [*box.lines, *([box.mark] if box.mark else [])]
    widest = max([width(box.head, HEAD), *(width(line, TEXT) for line in small)])
    height = LINE["head"] + LINE["text"] * len(small)
    return widest + 2 * PADDING[0], height + 2 * PADDING[1]


def _style(box: Box) -> Style:
    fill, stroke = FILLS.get(box.phase, FILLS[""]), STROKES.get(box.phase, STROKES[""])
    style = {
        "edge": Style("#ffffff", "#999999", 0.8, 9),
        "op": Style(fill, stroke, 0.9, 3),
        "kernel": Style(fill, stroke, 2.0, 3),
    }[box.kind]
    return Style(style.fill, CULPRIT, 3.0, style.rounding) if box.mark else style


def _draw_box(axes: mpl.axes.Axes, box: Box, centre: Point, size: tuple[float, float]) -> None:
    style = _style(box)
    x, y = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    axes.add_patch(
        FancyBboxPatch(
            (x, y), *size, boxstyle=f"round,pad=0,rounding_size={style.rounding}",
            facecolor=style.fill, edgecolor=style.stroke, linewidth=style.width, zorder=2,
        )
    )  # fmt: skip
    y += PADDING[1] + LINE["head"] * 0.55
    light = box.kind == "edge"
    _write(axes, centre[0], y, box.head, TEXT if light else HEAD, color="#222222")
    y += LINE["head"] * 0.45 + LINE["text"] * 0.5
    for line in box.lines:
        _write(axes, centre[0], y, line, TEXT, color="#555555" if light else "#333333")
        y += LINE["text"]
    if box.mark:
        _write(axes, centre[0], y, box.mark, TEXT, color=CULPRIT)


def _write(
    axes: mpl.axes.Axes, x: float, y: float, text: str, font: FontProperties,
    *, color: str = "#111111", ha: str = "center",
) -> None:  # fmt: skip
    axes.text(x, y, text, fontproperties=font, ha=ha, va="center_baseline", color=color, zorder=3, parse_math=False)


def _border(centre: Point, size: tuple[float, float], towards: Point, *, below: bool) -> Point:
    """Where a line leaves a box below, or enters it above, on its way to or from a point."""
    room = max(size[0] / 2 - PADDING[0], 0)
    x = min(max(towards[0], centre[0] - room), centre[0] + room)
    return x, centre[1] + (size[1] / 2 if below else -size[1] / 2)


def _arrow(points: Sequence[Point]) -> FancyArrowPatch:
    """A line that runs down through its points, bends between them, and ends in an arrow."""
    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x, y), end in pairwise(points):
        middle = (y + end[1]) / 2
        vertices += [(x, middle), (end[0], middle), end]
        codes += [Curve.CURVE4] * 3
    return FancyArrowPatch(
        path=Curve(vertices, codes), arrowstyle="-|>,head_length=4,head_width=2", color="#777777", linewidth=0.8,
        zorder=1,
    )  # fmt: skip
